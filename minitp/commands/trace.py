"""`minitp trace show|export|check`."""
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from minitp.files import replacing

if TYPE_CHECKING:
    from minitp.trace.file import Trace


def show(file: Path, by: str | None, rank: int | None, as_json: bool) -> None:
    """The summary as tables, or its numbers as JSON."""
    from minitp.trace.file import Trace
    trace = Trace.read(file)
    if as_json:
        from minitp.trace.summary import BY, as_plain
        from minitp.trace.timeline import Timeline
        print(json.dumps(as_plain(Timeline.of(trace), BY if by is None else (by,), rank)))
    else:
        from minitp.trace.show import show as print_tables
        print_tables(trace, by=by, rank=rank)


def export(file: Path, kind: str, output: Path | None) -> None:
    """Chrome/Perfetto JSON or CSV, to a file or standard output."""
    from minitp.trace.export import chrome, csv
    from minitp.trace.file import Trace
    trace = Trace.read(file)
    if kind == "csv":
        csv(trace, sys.stdout if output is None else output)
    elif output is None:
        json.dump(chrome(trace), sys.stdout)
    else:
        with replacing(output) as target:
            target.write(json.dumps(chrome(trace)).encode())


def check(file: Path) -> int:
    """0 where every recorded collective is as the closed form says, 1 with the differences printed otherwise, 2 where
    there is nothing to compare. A run that failed is not all there: 1, with what can be said of its beginning."""
    from minitp.trace.check import compare
    from minitp.trace.failed import is_failed
    from minitp.trace.file import Trace
    from minitp.trace.predict import plan_from_run, predict, unforetold
    from minitp.trace.wording import sites_in_words
    trace = Trace.read(file)
    why = unforetold(trace.run)
    if why:
        print(f"{file.name}: {why}.", file=sys.stderr)
        return 2
    failed = is_failed(trace.run)
    if failed:
        _tell_of_failure(file, trace)
    if failed and not {"generation", "training"} & set(trace.run):
        print(f"{file.name}: it failed before its model was loaded, or in a script of its own: no closed form "
              "foretells it.", file=sys.stderr)
        return 2
    expected = predict(plan_from_run(trace.run))
    differences = compare(trace, expected, cut_off=failed)
    if differences:
        print(f"{file.name} differs from the closed form:\n" + "\n".join(f"  {line}" for line in differences))
        return 1
    if failed:
        _tell_of_beginning(file, trace, len(expected))
        return 1
    payload, broken = (sum(getattr(event, name) for event in expected) for name in ("payload", "broken"))
    if broken:
        print(f"{file.name}: {broken:,} all-reduces on each rank were skipped on purpose, at "
              f"{sites_in_words(event.site for event in expected if event.broken)}: the text is not what this model "
              "says.")
    others = f"{'other ' * bool(broken)}{len(expected) - broken:,} collectives"
    print(f"{file.name}: all {others} on each of {trace.run['ranks']} ranks are as the closed "
          f"form says, in order, shape, type and payload ({payload:,} bytes).")
    return 0


def _tell_of_failure(file: Path, trace: "Trace") -> None:
    from minitp.trace.failed import failed_line, waiting_lines
    print(f"{file.name}: {failed_line(trace.run)}", *waiting_lines(trace), sep="\n  ")


def _tell_of_beginning(file: Path, trace: "Trace", expected: int) -> None:
    from minitp.trace.check import reached
    few, many, beyond = reached(trace, expected)
    print(f"{file.name}: {f'{few:,} to ' * (few < many)}{many:,} of the {expected:,} collectives of its passes had "
          f"ended on each of {trace.run['ranks']} ranks, and are as the closed form says, in order, shape, type and "
          "payload."
          + (f" {beyond:,} more are of a pass that the header doesn't tell of." if beyond > 0 else ""))
