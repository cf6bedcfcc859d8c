"""Make the traces that come with minitp, by real runs under MPI: `python -m tests.make_bundled_traces [NAME]…`

    tiny-4-ranks            the tiny model, every array whole; loaded by scatter, the table cut along hidden, logits
                            gathered: scatter, broadcast, all-gather and all-reduce
    smollm2-3-ranks         SmolLM2-135M-Instruct continues a sentence: 62 sync points a token, block maxima
    tiny-training-4-ranks   two more steps of training for the tiny model; its gradients in blocks

Everything in them but the times is the same on every machine with the same libraries. The times are this machine's: run
it where nothing else runs, and look at the share of waiting that it prints.
"""
import subprocess
import sys
from os import getloadavg
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from minitp.trace import Timeline, Trace, compare
from minitp.trace.predict import plan_from_run, predict
from minitp.trace.show import crowded, share_line

FOLDER = Path(__file__).parents[1] / "minitp" / "view" / "traces"
MOST_BYTES = 1_200_000             # of all together

RUNS = {
    "tiny-4-ranks": ["generate", "--values", "--model", "tiny", "--ranks", "4", "--embedding", "hidden", "--load",
                     "scatter", "--max-tokens", "8", "in a dic"],
    "smollm2-3-ranks": ["generate", "--values", "--model", "smollm2-135m", "--ranks", "3", "--max-tokens", "10",
                        "A computer is a machine that"],
    "tiny-training-4-ranks": ["train", "--values", "--set", "model.from=tiny", "--ranks", "4", "--steps", "2",
                              "--batch", "1", "--tokens", "8", "--seed", "32975", "--rate", "0.001",
                              "--evaluate-every", "0", "--sample-every", "0", "--save-every", "0"],
}


def make(name: str) -> None:
    """Run, check against the closed form, give it its name and write it."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file = FOLDER / f"{name}.json.gz"
    verb, *options = RUNS[name]
    with TemporaryDirectory() as folder:
        out = ["--out", folder] if verb == "train" else []
        subprocess.run([sys.executable, "-m", "minitp", verb, "--world", "mpi", "--trace", str(file), *out, *options],
                       check=True)
    trace = Trace.read(file)
    trace.run["id"] = name
    trace.run["command"] = RUNS[name]
    if differences := compare(trace, predict(plan_from_run(trace.run))):
        raise SystemExit(f"{name} is not as the closed form says: {differences}")
    if dull := dullest(trace):
        raise SystemExit(f"{name}: {dull}: in a picture that reads as a mistake")
    trace.write(file)
    shared = f"; {trace.run['ranks']} ranks shared {trace.run['cores']} cores" if crowded(trace) else ""
    print(f"{file.name}: {file.stat().st_size:,} bytes, {len(trace):,} events. {share_line(Timeline.of(trace))} The "
          f"load of the machine was {getloadavg()[0]:.1f}{shared}.")


def dullest(trace: Trace) -> str:
    """The first h of an MLP, or heads' output, that is all but zero, or a target that was the largest logit, so that
    the ranks add zeros; empty where every rank's numbers are alive."""
    names = trace.words("name", "arrays") if len(trace.arrays) else np.array([])
    for number in np.flatnonzero(np.isin(names, ["h", "heads"])):
        kept = trace.arrays.kept[number]
        numbers = np.abs(kept.get("data", kept.get("maxima")))
        if numbers.size and np.median(numbers) < 1e-3:
            return f"array {number}, {names[number]}, is all but zero"
    for number in np.flatnonzero(trace.words("site") == "loss.target"):
        after = trace.value(int(number))[1]
        if after is not None and after.cells[-1, -1] == 0:
            return f"event {number}, the target's logit, is the largest of all"
    return ""


def main(names: list[str]) -> None:
    for name in names or RUNS:
        make(name)
    total = sum(file.stat().st_size for file in FOLDER.glob("*.json.gz"))
    if total > MOST_BYTES:
        raise SystemExit(f"the bundled traces take {total:,} bytes, more than {MOST_BYTES:,}")


if __name__ == "__main__":
    main(sys.argv[1:])
