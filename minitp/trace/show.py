"""`minitp trace show FILE`: the summary of a trace as tables on a terminal. rich is imported here only."""
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from minitp.trace.emulated import emulated_line
from minitp.trace.failed import failed_line, is_failed, left_out_line, waiting_lines
from minitp.trace.file import Trace
from minitp.trace.schema import MESSAGES
from minitp.trace.show_training import step_lines
from minitp.trace.simulated import is_simulated, lane_words, simulated_line
from minitp.trace.summary import Row, crowded, stragglers, summarize, total, working_phases
from minitp.trace.timeline import Timeline
from minitp.trace.wording import PHASES, count, duration, plain, share, sites_in_words, size

CHECKPOINT = "checkpoint"          # a phase without sync points that takes time all the same
_LONGEST = 40                      # rows of a table
_LANES = 16                        # of a simulated run that are named
_PARTS = ("computing", "waiting", "moving")
_HEADS = {"compute": "green", "wait": "yellow", "move": "blue"}


def show(trace: Trace, *, by: str | None = None, rank: int | None = None, console: Console | None = None) -> None:
    """Print the header, the table per phase, a table `by` (site, unless asked otherwise) and what it teaches."""
    console = console or Console(highlight=False)
    timeline = Timeline.of(trace)
    work = working_phases(timeline) or None
    rows = summarize(timeline, by or "site", rank, work)         # first: a wrong `by` or rank is said before all else
    for line in header(trace):
        console.print(line)
    if rank is not None:
        console.print(Text(f"rank {rank} alone", "bold"))
    ranks = len(trace.ranks) if rank is None else 1
    phases = summarize(timeline, "phase", rank, work and [*work, CHECKPOINT])
    if by not in ("phase", "token", "step", "rank"):
        console.print("", _phase_table(phases, "phase", ranks), "", _site_table(rows, by or "site"), "", sep="\n")
    else:
        console.print("", _phase_table(phases if by == "phase" else rows, by, 1 if by == "rank" else ranks), "",
                      sep="\n")
    if by == "phase":
        console.print(*(Text(f"{row.key}: {PHASES[row.key]}", "dim") for row in phases if row.key in PHASES), "",
                      sep="\n")
    for sentence, style in (*((line, "") for line in step_lines(timeline, phases, ranks)),
                            (share_line(timeline, rank), "bold"), (last_line(timeline), ""),
                            (left_out_line(trace), ""), (teaches(timeline, phases), "italic")):
        if sentence:
            console.print(Text(sentence, style))


def header(trace: Trace) -> list[Text]:
    """What was run and where; a loud line where ranks share cores."""
    run = trace.run
    model, versions = _dict(run, "model"), _dict(run, "versions")
    title = Text.assemble((plain(model.get("name") or "a run", 40), "bold"), f" on {count(run['ranks'], 'rank')}")
    where = [plain(run.get("world", "")), _mesh(run), _machine(run), _blas(run), plain(run.get("created", ""), 30)]
    title.append("".join(f" · {part}" for part in where if part), "dim")
    lines = [title]
    if model:
        sizes = (("layers", "layers"), ("hidden", "hidden"), ("heads", "heads"), ("kv_heads", "kv heads"),
                 ("ffn", "ffn"), ("vocab", "vocabulary"))
        shown = [f"{word} {plain(model[key], 12)}" for key, word in sizes if key in model]
        lines.append(Text(" · ".join(shown), "dim"))
    lines.append(Text(" · ".join(f"{plain(k, 20)} {plain(v, 40)}" for k, v in list(versions.items())[:6]), "dim"))
    if is_simulated(run):
        lines.append(Text(f" {simulated_line(run)} ", "bold black on cyan"))
        lines += [Text(f"rank {rank}: {words}", "dim") for rank, words in enumerate(lane_words(run)[:_LANES])]
        if run["ranks"] > _LANES:
            lines.append(Text(f"… and {run['ranks'] - _LANES:,} more (--json has them all)", "dim"))
    if emulated := emulated_line(run):
        lines.append(Text(f" {emulated} ", "bold black on cyan"))
    if crowded(trace):
        lines.append(Text(f" {run['ranks']} ranks share {count(run['cores'], 'core')}: waits show the scheduler taking "
                          "turns, not the network. ", "bold black on yellow"))
    if is_failed(run):
        lines.append(Text(f" {failed_line(run)} ", "bold white on red"))
        lines += [Text(line, "red") for line in waiting_lines(trace)]
    if broken := broken_line(trace):
        lines.append(Text(f" {broken} ", "bold white on red"))
    return [line for line in lines if line.plain]


def broken_line(trace: Trace) -> str:
    """What a view of a run with injected faults must say; empty where there are none."""
    broken = np.flatnonzero(trace.events["broken"])
    if not len(broken):
        return ""
    sites = [trace.strings[site] for site in np.unique(trace.events["site"][broken])]
    skipped = int((trace.events["rank"][broken] == trace.events["rank"][broken[0]]).sum())
    return (f"Broken on purpose: {skipped:,} of the sums were skipped, at {sites_in_words(sites, 60)}; each rank took "
            "its own partial sum for the whole.")


def _dict(run: dict[str, Any], key: str) -> dict[str, Any]:
    return run[key] if isinstance(run.get(key), dict) else {}


def _mesh(run: dict[str, Any]) -> str:
    return " × ".join(f"{plain(axis, 8)} {plain(n, 8)}" for axis, n in list(_dict(run, "mesh").items())[:8])


def _machine(run: dict[str, Any]) -> str:
    hosts, cores = run.get("hosts"), run.get("cores")
    if not isinstance(cores, int):
        return ""
    return count(cores, "core") + (f" of {count(hosts, 'host')}" if isinstance(hosts, int) and hosts > 1 else "")


def _blas(run: dict[str, Any]) -> str:
    threads = run.get("blas_threads")
    if not isinstance(threads, list) or not all(isinstance(n, int) for n in threads) or not threads:
        return ""
    return "BLAS threads " + "–".join(map(str, sorted({min(threads), max(threads)})))


# --- tables -------------------------------------------------------------------------------------------------------


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False,
                  show_edge=False, collapse_padding=True)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=number > 0,
                         overflow="ellipsis", style=_HEADS.get(name))
    return table


def _phase_table(rows: list[Row], by: str, ranks: int) -> Table:
    """Shares are of each row's own time. A step's row is of all its passes together."""
    each = "" if by == "step" else "\nper pass"
    numbers = [f"{name}{each}" for name in ("sync points", "payload", "time")]
    table = _table(f"per {by}", by, "passes", *numbers, *_HEADS)
    for row in rows[:_LONGEST]:
        passes = row.passes if row.passes and each else 1
        table.add_row(plain(row.key, 40), f"{row.passes:,}" if row.passes else "–", _per_pass(row, passes),
                      size(round(row.payload / passes)), duration(row.time / passes / max(ranks, 1)),
                      *(share(getattr(row, part), row.time) for part in _PARTS))
    _note_the_rest(table, rows)
    return table


def _per_pass(row: Row, passes: int) -> str:
    """62, or 62.5 where passes differ; what isn't a sync point is added in words."""
    if row.control and not row.passes:
        return f"{row.control:,} control"
    numbers = [f"{row.sync_points / passes:,.4g}"]
    others = (row.messages, "messages"), (row.sample, "sample"), (row.broken, "skipped")
    numbers += [f"{n / passes:,.4g} {word}" for n, word in others if n]
    return " + ".join(numbers)


def _site_table(rows: list[Row], by: str) -> Table:
    """Shares are of the whole time, so that the columns say where it goes."""
    whole = sum(row.time for row in rows)
    rows = [row for row in rows if row.meets or row.time > 0.005 * whole]
    table = _table(f"where the ranks meet, by {by} (shares of the whole time)", by,
                   *(["op"] if by == "site" else []), "times", "payload", *_HEADS)
    table.columns[-3].header = "compute\nbefore it"
    if by == "site":
        table.columns[1].justify = "left"
    for row in rows[:_LONGEST]:
        site, _, op = row.key.rpartition(" · ") if by == "site" else (row.key, "", "")
        names = [plain(site or row.key, 60), *([plain(op if site else "", 16)] if by == "site" else [])]
        times = row.meets + row.control
        said = f"{times:,}" if times else f"{row.broken:,} skipped" if row.broken else ""
        table.add_row(*names, said, size(row.payload) if times else "",
                      *(share(getattr(row, part), whole) for part in _PARTS))
    _note_the_rest(table, rows)
    return table


def _note_the_rest(table: Table, rows: list[Row]) -> None:
    if len(rows) > _LONGEST:
        table.add_row(f"… and {len(rows) - _LONGEST:,} more (--json has them all)")


# --- sentences ----------------------------------------------------------------------------------------------------


def share_line(timeline: Timeline, rank: int | None = None) -> str:
    """"17 % of the time was waiting": of the phases in which the model worked, loading apart."""
    phases = [phase for phase in working_phases(timeline) if phase != "load"] or working_phases(timeline)
    row = total(timeline, rank, phases)
    named = " and ".join(", ".join(plain(phase, 20) for phase in phases if phase).rsplit(", ", 1))
    return f"{share(row.waiting, row.time)} of the time{f' in {named}' if named else ''} was waiting."


def last_line(timeline: Timeline) -> str:
    """Who was waited for."""
    counts = stragglers(timeline)
    syncs = sum(counts.values())
    if not syncs:
        return ""
    ranked = sorted(counts, key=lambda rank: -counts[rank])[:4]
    return "Last to arrive: " + ", ".join(f"rank {rank} {share(counts[rank], syncs)}" for rank in ranked) + "."


def teaches(timeline: Timeline, phases: list[Row]) -> str:
    """One sentence that this trace supports."""
    by_name = {row.key: row for row in phases}
    if is_failed(timeline.trace.run) and len(timeline.trace.unfinished["rank"]):
        return _teaches_of_failure(timeline.trace)
    if timeline.trace.run["ranks"] == 1:
        return ("One rank meets at the same places as many would, with nobody to wait for: run it on 2 and compare the "
                "sync points (equal) and the waiting (not).")
    if "forward" in by_name and "backward" in by_name:
        return ("Backward reads the table of forward the other way: where forward summed, it sends nothing, and where "
                "forward sent nothing, it sums.")
    prompt, token = by_name.get("prefill"), by_name.get("decode")
    if prompt and token and prompt.passes and token.passes:
        each = [row.sync_points / row.passes for row in (prompt, token)]
        if each[0] == each[1] and prompt.payload and token.payload:
            more = prompt.payload / prompt.passes / (token.payload / token.passes)
            return (f"A whole prompt and a single token meet at the same {each[0]:g} sync points; the prompt just "
                    f"carries {more:.3g} times the payload.")
    counts = stragglers(timeline)
    worst = max(counts, key=lambda rank: counts[rank], default=0)
    if counts and counts[worst] > sum(counts.values()) * 1.5 / len(counts):
        return (f"The others mostly waited for rank {worst}: a collective starts when its last rank arrives, so the "
                "slowest rank sets everyone's pace.")
    return "A collective starts when its last rank arrives: every rank but the last one waits."


def _teaches_of_failure(trace: Trace) -> str:
    calls = trace.unfinished_rows()
    one_call = len({call._replace(rank=0, enter=0, leave=0) for call in calls}) == 1 and calls[0].op not in MESSAGES
    if one_call and len({call.rank for call in calls}) == trace.run["ranks"]:
        return "A collective to which all ranks have come ends: this run was on its way, and not stuck."
    return ("A collective ends when all its ranks have come to it. Those that waited are healthy, as a rule: look for "
            "the rank that was somewhere else.")
