"""Small real runs for the app's tests."""
from pathlib import Path
from tempfile import TemporaryDirectory

from typer.testing import CliRunner

from minitp.cli import app
from minitp.trace import Trace


def tiny_run(*options: str, ranks: int = 2, tokens: int = 3) -> Trace:
    """What `minitp generate --model tiny --world threads --values` records."""
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "tiny.json")
        result = CliRunner().invoke(app, ["generate", "--model", "tiny", "--world", "threads", "--ranks", str(ranks),
                                          "--max-tokens", str(tokens), "--values", "--trace", file, *options, "ab"],
                                    catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return Trace.read(file)


def tiny_training(*options: str, ranks: int = 2, steps: int = 1) -> Trace:
    """What `minitp train --model tiny --world threads --values` records of its first steps."""
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "tiny.json")
        result = CliRunner().invoke(app, [
            "train", "--model", "tiny", "--world", "threads", "--ranks", str(ranks), "--steps", str(steps), "--batch",
            "2", "--tokens", "8", "--evaluate-every", "0", "--sample-every", "0", "--save-every", "0", "--values",
            "--trace", file, "--out", str(Path(folder) / "run"), *options], catch_exceptions=False)
        assert result.exit_code == 0, result.output
        return Trace.read(file)
