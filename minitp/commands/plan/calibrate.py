"""`minitp plan calibrate`: measure on every rank, write the description, print it."""
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from minitp.comm import Communicator
from minitp.commands.plan.tables import table
from minitp.errors import ConfigError, SaveError
from minitp.plan import units
from minitp.plan.calibrate import Calibration, calibrate, machine_of
from minitp.plan.calibrate.error import Error
from minitp.plan.calibrate.messages import SmallerGroups
from minitp.plan.calibrate.whole_passes import told
from minitp.plan.catalogue import machine, machines_folder, write_machine
from minitp.plan.catalogue.machine_files import read_machines
from minitp.plan.machine import Machine
from minitp.progress import steps_bar
from minitp.trace.wording import plain, size

NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,60}", re.ASCII)


def calibrate_on_rank(group: Communicator, groups: SmallerGroups, name: str, seconds: float, quick: bool,
                      as_json: bool) -> None:
    """The work of every rank; rank 0 writes and prints. Nothing is written before all is measured."""
    path = Path(group.on_root(lambda: str(_place(name)), site="calibrate", reason="see where the description goes"))
    began = time.monotonic()
    with steps_bar(Console(stderr=True) if group.rank == 0 else None, "calibrating", int(seconds)) as step:
        def progress(now: str) -> None:
            step(min(int(time.monotonic() - began), int(seconds)), now)

        found = calibrate(group, groups, seconds=seconds, quick=quick, progress=progress)
    written = group.on_root(lambda: _write(found, name, path), site="calibrate", reason="write the description")
    if found is not None:
        path, changes = Path(written[0]), written[1]
        if as_json:
            print(json.dumps({**as_plain(found, path), "changes": changes}))
        else:
            show(found, path, Console(), changes)


def _place(name: str) -> Path:
    """Where the description goes; ConfigError or SaveError where it can't, before minutes are spent on measuring."""
    if not NAME.fullmatch(name) or name.endswith(".toml"):
        raise ConfigError(f"a machine can't be called {plain(name, 60)!r}: take small letters, digits, - . and _")
    path = machines_folder() / f"{name}.toml"
    if not path.exists() and _known(name):
        raise ConfigError(f"the catalogue has a machine {name!r} already: choose another --name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SaveError(f"there is no place for the description at {path}: {error.strerror or error}. Set "
                        "MINITP_MACHINES to a folder that can be written to") from error
    return path


def _known(name: str) -> bool:
    """Whether the catalogue has a machine of this name, or makes one of it (4xh100)."""
    try:
        machine(name)
    except ConfigError:
        return False
    return True


def _write(found: Calibration | None, name: str, path: Path) -> tuple[str, list[str]]:
    """Where it was written, and what that changed. A description of ranks with a core each isn't replaced by one of
    ranks that take turns, or share a process: that one gets a name of its own."""
    if found is None:
        return str(path), []
    old, worse = _before(path, name), found.crowded or found.facts["world"] == "threads"
    if old is None or not worse or old.note:
        made = machine_of(found, name)
        write_machine(made, path)
        return str(path), [] if old is None else replaced(old, made)
    kind = "threads" if found.facts["world"] == "threads" else "ranks"
    beside = path.with_name(f"{path.stem}-{found.facts['ranks']}-{kind}.toml")
    write_machine(machine_of(found, beside.stem), beside)
    return str(beside), [f"{name} stays as it was: it is of {old.devices} ranks that have a core each, and these "
                         f"{found.facts['ranks']} {'are threads' if kind == 'threads' else 'took turns'}. To replace "
                         f"it, remove {path}"]


def _before(path: Path, name: str) -> Machine | None:
    """The description that is there; None where there is none that can be read."""
    try:
        return read_machines(path)[0].get(name) if path.exists() else None
    except ConfigError:
        return None


def replaced(old: Machine, new: Machine) -> list[str]:
    """What of a description became another one: its day and ranks, the rates, the tables that are gone."""
    when = plain(str(old.measured.get("created", ""))[:16])
    said = [f"replaced the description of {when or 'an unknown day'} ({old.devices} ranks, now {new.devices}): memory "
            f"read {units.rate(old.device.bandwidth)}, now {units.rate(new.device.bandwidth)}; a message's α "
            f"{units.duration(old.levels[0].link.latency_s)}, now {units.duration(new.levels[0].link.latency_s)}; a "
            f"rank's memory {units.both(old.device.memory)}, now {units.both(new.device.memory)}"]
    gone = sorted({ranks for _, ranks in set(old.levels[0].tables) - set(new.levels[0].tables)})
    if gone:
        said.append(f"its tables for {', '.join(map(str, gone))} ranks are gone: calibrate with as many for them, "
                    "under another --name")
    return said


def as_plain(found: Calibration, path: Path) -> dict[str, Any]:
    """Everything measured, for --json; rates in bytes/s and FLOP/s, times in s."""
    return {"file": str(path), "facts": dict(found.facts), "rates": {k: dict(v) for k, v in found.rates.items()},
            "message": {**_pair(found.message_fit.link, found.message_error), "times": list(map(list, found.messages))},
            "collectives": [
                {"op": one.op, "ranks": one.ranks, **_pair(one.fit.link, one.fit_error),
                 "half_size": _finite(one.fit.half_size), "spread": one.spread,
                 "table_error": None if one.error is None else asdict(one.error),
                 "times": [[n, *spread] for n, spread in one.times.items()]} for one in found.collectives]}


def _pair(link: Any, error: Error | None) -> dict[str, Any]:
    return {"latency_s": link.latency_s, "bytes_per_s": _finite(link.bytes_per_s),
            "error": None if error is None else asdict(error)}


def _finite(number: float) -> float | None:
    return number if isfinite(number) else None


def show(found: Calibration, path: Path, console: Console, changes: Sequence[str] = ()) -> None:
    """Two tables, what to know about them, and where the description is."""
    facts = found.facts
    console.print(f"{facts['ranks']} ranks on {facts['cores']} cores, BLAS threads of each: {facts['blas_threads']}; "
                  f"{plain(facts['versions'].get('mpi', 'threads'))}", highlight=False, markup=False)
    console.print(_collectives(found))
    console.print(_rates(found))
    for line in (*notes(found), *token_told(found), *changes):
        console.print(f"minitp: {line}", highlight=False, markup=False)
    console.print(f"Written to {path}: --machine {path.stem}. Check it: minitp plan check --collectives",
                  highlight=False, markup=False, soft_wrap=True)


def _collectives(found: Calibration) -> Table:
    made = table("collective", "ranks", "α", "1/β", "n½", "pair off", "table off", "spread", right=range(1, 8),
                 title="Collectives: α + nβ, and tables by payload",
                 caption="off, in the median and at most: the pair from its own points, the table from sizes that are "
                         "in none")
    pair = found.message_fit
    made.add_row("message", "2", *_in_words(pair.link, pair.half_size), _off(found.message_error), "", "")
    for one in found.collectives:
        made.add_row(one.op, str(one.ranks), *_in_words(one.fit.link, one.fit.half_size), _off(one.fit_error),
                     _off(one.error), f"{one.spread:.0%}")
    return made


def _in_words(link: Any, half: float) -> tuple[str, str, str]:
    return (units.duration(link.latency_s), units.rate(link.bytes_per_s) if isfinite(link.bytes_per_s) else "–",
            size(round(half)) if isfinite(half) else "–")


def _off(error: Error | None) -> str:
    return "" if error is None else f"{error.median:.0%}, {error.worst:.0%}"


def _rates(found: Calibration) -> Table:
    made = table("", "alone", f"all {found.facts['ranks']} at once", right=(1, 2), title="One rank")
    words: dict[str, Callable[[float], str]] = {"read": units.rate, "copy": units.rate}
    names = {"read": "memory read (matrix · vector)", "copy": "memory copied, read + written",
             "float32": "products in float32", "float64": "products in float64"}
    for name, rate in found.rates.items():
        in_words = words.get(name, units.flops)
        made.add_row(names[name], in_words(rate["alone"]), in_words(rate["together"]))
    return made


def token_told(found: Calibration) -> list[str]:
    """How near the model of a token came to tokens decoded meanwhile."""
    pairs = [(weights, one) for weights, one in told(found.tokens, machine_of(found)) if one.modeled_s]
    if not pairs:
        return []
    said = "; ".join(f"{size(weights)} of weights a rank: {units.duration(one.modeled_s or 0.0)} modeled, "
                     f"{units.duration(one.measured_s)} measured" for weights, one in pairs)
    layer, whole = (units.duration(found.overhead[name]) for name in ("layer_s", "pass_s"))
    return [f"a token beside its products takes {layer} a layer and {whole} a pass; with that, {said}"]


def notes(found: Calibration) -> list[str]:
    """What whoever reads the tables must know."""
    from minitp.plan.calibrate import caveat
    said = [caveat(found)] if caveat(found) else []
    if found.busy:
        said.append("other work was on this machine (times spread widely, or its load was "
                    f"{found.facts.get('load_before', 0.0):.1f} before): calibrate again when it is quiet")
    return said
