"""The trace of a run: recorded by every rank, merged, written, summed up, shown, exported, checked.

The names below are imported when they are first used: the communicator needs the recorder, not the rest.
"""
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from minitp.trace.check import compare
    from minitp.trace.file import Trace
    from minitp.trace.live import ShowComm
    from minitp.trace.merge import align_clocks, collect, run_info
    from minitp.trace.recorder import Recorder
    from minitp.trace.schema import Event, Expected, Mark
    from minitp.trace.timeline import Timeline

_HOME = {"Event": "schema", "Mark": "schema", "Expected": "schema", "Recorder": "recorder", "Trace": "file",
         "align_clocks": "merge", "collect": "merge", "run_info": "merge", "Timeline": "timeline",
         "ShowComm": "live", "compare": "check"}
__all__ = ["Event", "Expected", "Mark", "Recorder", "ShowComm", "Timeline", "Trace", "align_clocks", "collect",
           "compare", "run_info"]


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(f"minitp.trace.{_HOME[name]}"), name)
    raise AttributeError(f"module 'minitp.trace' has no attribute {name!r}")
