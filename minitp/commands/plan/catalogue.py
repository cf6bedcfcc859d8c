"""`minitp plan catalogue`: the planner's catalogue, every row with its source."""
import json
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from minitp.errors import ConfigError
from minitp.plan import units
from minitp.plan.catalogue.listing import KINDS, Kind, Row, listing
from minitp.plan.catalogue.machine_files import machines_folder, read_machines
from minitp.plan.catalogue.machines import own_files
from minitp.plan.catalogue.runs import PUBLISHED
from minitp.trace.wording import count, plain


def print_catalogue(kinds: Sequence[str], word: str, *, as_json: bool, console: Console) -> None:
    """The parts of `kinds`, or of them the rows with `word` in their name. ConfigError where none has it."""
    rows = {kind: listing(kind, word) for kind in KINDS if kind in kinds}
    if not any(rows.values()):
        raise ConfigError(f"nothing in the catalogue's {', '.join(rows)} has {word!r:.60} in its name")
    if as_json:
        console.file.write(json.dumps(rows, indent=1) + "\n")
        return
    for kind, found in rows.items():
        if found:
            console.print(Text(kind, "bold"), _table(kind, found), "", sep="\n")
    if "machines" in rows:
        _tell_own(console)


def _table(kind: Kind, rows: list[Row]) -> Table:
    """Names, and beside each its numbers, its note, and who says so."""
    table = Table.grid("", "", padding=(0, 2, 0, 0))
    for row in rows:
        told = Text(" · ".join(part for part in _FACTS[kind](row) if part))
        for part in (row["note"], f"source: {row['source']}"):
            if part:
                told.append(f"\n{plain(part, 2000)}", "dim")
        table.add_row(Text(plain(row["name"], 60), "bold"), told)
    return table


def _model(row: Row) -> list[str]:
    return [f"{row['parameters']:,} parameters",
            f"{row['active']:,} of them for a token" if row["active"] != row["parameters"] else "",
            f"published: {units.count(row['published'])}" if row["published"] else "",
            f"{row['layers']} layers of {row['hidden']:,}",
            f"{row['heads']} heads ({row['kv_heads']} kv) of {row['head_size']}",
            f"ffn {row['ffn']:,}" + (f" × {row['experts']} experts" if row["experts"] > 1 else ""),
            f"vocabulary {row['vocab']:,}", f"positions {row['positions']:,}",
            f"files for {count(row['model_parallel'], 'rank')}" if row["model_parallel"] else "",
            f"trained on {units.count(row['trained_on'])} tokens" if row["trained_on"] else ""]


def _device(row: Row) -> list[str]:
    return [f"{row['memory_kind']}, {units.both(row['memory'])} by name, {units.both(row['memory_real'])} really",
            f"{units.rate(row['bandwidth'])}, of which {units.percent(row['bandwidth_reached'])} are reached",
            ", ".join(f"{dtype} {units.flops(rate)}" for dtype, rate in row["flops"].items())
            + f", of which {units.percent(row['flops_reached'])} are reached"]


def _machine(row: Row) -> list[str]:
    levels = [f"{level['name']}: {level['size'] if level['size'] > 1 else 'more of them'} by {level['link']}"
              + (f", {count(level['ports'], 'port')} a machine" if level["ports"] else "")
              + (f", measured: {', '.join(level['tables'])}" if level["tables"] else "") for level in row["levels"]]
    return [f"{row['devices']:,} × {row['device']}",
            f"{units.both(row['memory'])} by name, {units.both(row['memory_real'])} really", *levels]


def _link(row: Row) -> list[str]:
    if row["bytes_per_s"] is None:
        return [row["kind"], f"{units.duration(row['latency_s'])} more"]
    sheet = f"of {units.rate(row['data_sheet'])} on the data sheet" if row["data_sheet"] else ""
    return [f"latency {units.duration(row['latency_s'])}", f"{units.rate(row['bytes_per_s'])} each way {sheet}".strip()]


def _run(row: Row) -> list[str]:
    return [f"{row['model']} on {row['machine']} ({row['devices']:,} devices)", row["layout"] or "layout not published",
            f"{row['batch']:,} sequences of {row['seq']:,} tokens a step",
            f"{units.count(row['tokens'])} tokens" if row["tokens"] else "",
            *(f"{key.upper()} {units.percent(value)}" if PUBLISHED[key] == "share" else
              f"{value:,.10g} {PUBLISHED[key]}" for key, value in row["published"].items())]


_FACTS: dict[Kind, Callable[[Row], list[str]]] = {
    "models": _model, "devices": _device, "machines": _machine, "links": _link, "runs": _run}


def _tell_own(console: Console) -> None:
    """Where a user's machines are looked for, and which of the files there can't be read."""
    console.print(f"Your own machines: {machines_folder()}/*.toml (MINITP_MACHINES names another folder)",
                  style="dim", highlight=False, markup=False, soft_wrap=True)
    for path in own_files():
        try:
            read_machines(path)
        except ConfigError as error:
            console.print(Text(f"left out: {plain(error, 500)}", "yellow"), soft_wrap=True)
