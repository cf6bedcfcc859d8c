"""`minitp train`: the settings checked, the model, the text and the optimizer put together, and the run shown."""
import shlex
import sys
import tomllib
from dataclasses import dataclass
from typing import Any

from minitp.comm import Communicator
from minitp.commands.generate import check_targets
from minitp.environment import is_first_rank, launcher_environment
from minitp.errors import ConfigError
from minitp.trace.recorder import Recorder
from minitp.train import run_folder
from minitp.train.config import TrainConfig, merged, read_toml


@dataclass(frozen=True)
class TrainOptions:
    """Everything `minitp train` was asked for. `given`: settings of the command line, by section.

    trace_steps  only of the first so many steps there is a trace, or of the last, if negative; None: of all
    bar          a live bar or plain lines; None: a bar on a terminal
    """
    config: str | None = None
    given: dict[str, dict[str, Any]] | None = None
    set: tuple[str, ...] = ()
    resume: bool = False
    trace: str | None = None
    values: bool = False
    trace_steps: int | None = None
    show_comm: bool = False
    as_json: bool = False
    bar: bool | None = None

    def __post_init__(self):
        if self.trace is None and (self.values or self.trace_steps is not None):
            raise ConfigError(f"{'--values' if self.values else '--trace-steps'} says what a trace keeps: give --trace "
                              "FILE too")
        if self.trace_steps == 0:
            raise ConfigError("--trace-steps 0 would leave an empty trace: 2 keeps the first two steps, -2 the last "
                              "two")
        if is_first_rank():
            check_targets({"--trace": self.trace})
        if launcher_environment() is None:          # not a rank yet: refuse what can't be before ranks are started
            self.settle()

    def asked(self) -> dict[str, Any]:
        """What the file of settings and the command line say, not checked yet."""
        return merged({} if self.config is None else read_toml(self.config), self.given or {},
                      *map(setting, self.set))

    def settle(self) -> dict[str, Any]:
        """The run's settings, checked. Reads the file of settings, and of a run that goes on those in its folder."""
        asked = self.asked()
        if self.resume:
            return run_folder.resumed(run_folder.folder_of(asked), asked)
        run_folder.check_free(TrainConfig.from_dict(asked).folder)
        return asked

    def way_on(self) -> str | None:
        """How a run that was stopped goes on; None where it has no checkpoint."""
        from minitp.train.checkpoint import checkpoints, step_of
        folder = run_folder.folder_of(self.asked())
        found = checkpoints(folder)
        if not found:
            return None
        return f"minitp train --resume -o {shlex.quote(str(folder))} goes on after step {step_of(found[-1]):,}"

    def traced(self, first: int, steps: int) -> tuple[int, int]:
        """(first, last + 1) step of a run from step `first` on of which there is to be a trace."""
        if self.trace is None:
            return 0, 0
        few = self.trace_steps
        if few is None:
            return first, steps
        return (first, first + few) if few > 0 else (max(first, steps + few), steps)

    def recorder(self, rank: int) -> Recorder:
        """Rank r's recorder: it counts, and keeps events only for a trace."""
        from minitp.trace.live import ShowPasses
        from minitp.train.loop import StepCounter
        show = ShowPasses(sys.stderr) if self.show_comm and rank == 0 else None
        return Recorder(rank, keep_events=self.trace is not None, keep_values=self.values, listener=StepCounter(show))


def setting(text: str) -> dict[str, dict[str, Any]]:
    """model.layers=4 → {"model": {"layers": 4}}; what isn't a TOML value is a text."""
    place, equals, value = text.partition("=")
    section, dot, key = place.strip().partition(".")
    if not (equals and dot and section and key):
        raise ConfigError(f"--set {text!r:.60}: it takes SECTION.KEY=VALUE, such as model.layers=4")
    try:
        return {section: {key: tomllib.loads(f"value = {value}")["value"]}}
    except tomllib.TOMLDecodeError:
        return {section: {key: value}}


def train(group: Communicator, options: TrainOptions) -> dict[str, Any]:
    """On every rank: settle what is asked, put it together, run it; rank 0 shows and writes. Returns the last row."""
    from minitp.commands.train_run import opened
    from minitp.commands.train_tell import Teller
    from minitp.trace.merge import align_clocks
    if options.trace:
        align_clocks(group)
    settings = group.on_root(options.settle, site="settings", reason="tell every rank what to train, and how")
    with opened(group, TrainConfig.from_dict(settings), options.resume, options.traced) as run:
        return Teller(run, options).tell()
