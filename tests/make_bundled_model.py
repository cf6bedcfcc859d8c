"""Take what a training run made for the bundled model: `python -m tests.make_bundled_model RUN`, once

    mpirun -n 2 minitp train --config minitp/bundled/tiny/train.toml

has ended; RUN is its folder, runs/bundled-tiny. From its last checkpoint come the weights, from its log the loss curve,
and README.md says on what it was trained.
"""
import csv
import shutil
import sys
from pathlib import Path

from minitp.models import Bundled
from minitp.trace.wording import count
from minitp.train.log import read_log

FOLDER = Bundled("tiny").folder
MOST_BYTES = 1_000_000             # of the weights
CURVE = "losses.csv"
LAST = 100                         # steps whose mean loss is told: one step's is that of a few windows
FILES = ("config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")

README = """# tiny

The model that comes with minitp: {parameters:,} weights, a byte is a token. `minitp generate --model tiny "The "`

Trained by `mpirun -n {ranks} minitp train --config minitp/bundled/tiny/train.toml` on `pydoc_data.topics` of
Python {python} (that text's SHA-256 {sha256}).
Loss per byte, in nats: {loss:.3f} as a mean of the last {last} steps, {validation:.3f} on the last 5 % of the text,
from which it did not learn. [losses.csv](losses.csv) has the curve. The {steps:,} steps took {minutes}.
"""


def main(run: Path) -> None:
    rows = read_log(run)
    checkpoint = run / Path([row["folder"] for row in rows if row["kind"] == "checkpoint"][-1]).name
    for name in FILES:
        shutil.copyfile(checkpoint / name, FOLDER / name)
    if (size := (FOLDER / "model.safetensors").stat().st_size) > MOST_BYTES:
        raise SystemExit(f"the weights take {size:,} bytes, more than {MOST_BYTES:,}")
    write_curve(rows)
    start = next(row for row in rows if row["kind"] == "start")
    evaluation = [row for row in rows if row["kind"] == "evaluation"][-1]
    steps = [row for row in rows if row["kind"] == "step"]
    (FOLDER / "README.md").write_text(README.format(
        parameters=start["parameters"], ranks=start["ranks"], python=start["text"]["python"],
        sha256=start["text"]["sha256"], validation=evaluation["loss"],
        loss=sum(row["loss"] for row in steps[-LAST:]) / len(steps[-LAST:]), last=min(LAST, len(steps)),
        steps=len(steps), minutes=count(round(sum(row["seconds"] for row in steps) / 60), "minute")))


def write_curve(rows: list[dict]) -> None:
    """One line a step: its loss, and where it was evaluated the loss on the rest of the text."""
    evaluated = {row["step"]: f"{row['loss']:.6f}" for row in rows if row["kind"] == "evaluation"}
    with open(FOLDER / CURVE, "w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["step", "loss", "validation_loss"])
        table.writerows([row["step"], f"{row['loss']:.6f}", evaluated.get(row["step"], "")] for row in rows
                        if row["kind"] == "step")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
