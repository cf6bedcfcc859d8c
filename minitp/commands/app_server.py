"""Streamlit's command line, which can be stopped also where nobody reads what it says any more.

    minitp app 2>&1 | tee log              Ctrl-C ends `tee` first

Streamlit says that it stops before it does: to a closed pipe that would be an error, and the server would go on.
"""
import os
import sys
from typing import Any


class Patient:
    """A text stream that goes on into nothing once its reader is gone."""

    def __init__(self, stream: Any):
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            self._into_nothing()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except BrokenPipeError:
            self._into_nothing()

    def _into_nothing(self) -> None:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, self._stream.fileno())
        os.close(nothing)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


if __name__ == "__main__":
    sys.stdout, sys.stderr = Patient(sys.stdout), Patient(sys.stderr)          # type: ignore[assignment]
    from streamlit.web.cli import main
    main(prog_name="streamlit")
