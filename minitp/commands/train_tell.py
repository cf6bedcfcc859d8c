"""What rank 0 tells of a training run as it goes: the display, the log, and at the end the trace."""
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minitp.commands.train_display import Display, head, tail
from minitp.commands.train_run import Run
from minitp.environment import is_unicode
from minitp.launcher.terminal import terminal_columns
from minitp.trace.file import Trace
from minitp.trace.live import ShowPasses
from minitp.trace.predict_training import TrainingPlan
from minitp.train.log import RunLog, take_back
from minitp.train.loop import StepCounter

if TYPE_CHECKING:
    from minitp.commands.train import TrainOptions

Row = dict[str, Any]


class Teller:
    """Runs a run on this rank, and on rank 0 tells of it."""

    def __init__(self, run: Run, options: "TrainOptions"):
        self.run, self.options, self.speaks = run, options, run.training.group.rank == 0
        self.last: dict[str, Row] = {}                         # the newest row of each kind
        self.first_loss: float | None = None

    def tell(self) -> Row:
        """The whole run; its last row."""
        training, begin = self.run.training, time.perf_counter()
        start = self.run.start_row()
        training.group.recorder.about = lambda: self._header(start)
        display, log = self._open(start)
        for row in training:
            self.last[row["kind"]] = row
            if row["kind"] == "step" and self.first_loss is None:
                self.first_loss = row["loss"]
            if log is not None:
                log.write(row)
            if display is not None:
                display.show(row)
        if display is not None:
            display.finish()
        trace = self._write_trace(start)
        listener = self.run.training.group.recorder.listener
        if isinstance(listener, StepCounter) and isinstance(listener.then, ShowPasses):
            listener.then.finish(trace)
        end = self._end_row(start, time.perf_counter() - begin)
        if log is not None:
            log.write(end)
            log.close()
        if display is not None:
            display.say(tail(end))
        elif self.speaks:
            print(json.dumps(end, ensure_ascii=not is_unicode(sys.stdout)))
        return end

    def _open(self, start: Row) -> tuple[Display | None, RunLog | None]:
        if not self.speaks:
            return None, None
        if self.run.resumed:
            take_back(self.run.folder, self.run.training.done)
        log = RunLog(self.run.folder)
        log.write(start)
        if self.options.as_json:
            return None, log
        columns, bar = terminal_columns(), False if self.options.show_comm else self.options.bar
        display = Display(sys.stdout, start["steps"], start["step"], columns is not None if bar is None else bar,
                          columns or 80)
        display.say(head(start))
        return display, log

    def _end_row(self, start: Row, seconds: float) -> Row:
        training, step = self.run.training, self.last.get("step", {})
        held = training.held
        return {"kind": "end", "step": training.done, "steps": training.done - start["step"], "seconds": seconds,
                "first_loss": self.first_loss, "loss": step.get("loss"),
                "validation_loss": self.last.get("evaluation", {}).get("loss"),
                "sync_points": step.get("sync_points"), "payload": step.get("payload"),
                "tokens_per_second": step.get("tokens_per_second"), "ranks": start["ranks"], "world": start["world"],
                "memory": None if held is None else held.to_row(),
                "checkpoint": self.last.get("checkpoint", {}).get("folder"),
                "prompt": self.run.config.run.sample_prompt,
                "temperature": self.run.config.run.sample_temperature, "folder": start["folder"]}

    def _header(self, start: Row) -> dict[str, Any]:
        """What the trace's header says of the run: of one that fails, as far as it has come."""
        training, run = self.run.training, self.run
        plan = TrainingPlan(run.placement, str(training.learner.passes.dtype), training.segments,
                            run.config.train.recompute)
        described = plan.to_run()
        described["model"]["name"] = start["model"]
        described["training"]["settings"] = run.config.deciding()
        return described | {"losses": training.losses, "trained_on": start["text"]}

    def _write_trace(self, start: Row) -> Trace | None:
        """The events of all ranks, and in the header what the closed form needs to foretell them. On rank 0 it is
        returned, if there is to be one."""
        from minitp.tokenizer import piece
        from minitp.trace.kept import named_tokens
        from minitp.trace.merge import collect, run_info
        training, run = self.run.training, self.run
        if self.options.trace is None:
            return None
        recorder = training.group.recorder
        recorder.keep_events = True
        info = run_info(training.group, **self._header(start))
        trace = collect(training.group, recorder, info, training.holds().to_row())
        if trace is not None:
            if run.tokenizer is not None and self.options.values:
                trace.run["words"] = {str(token): piece(run.tokenizer, token) for token in named_tokens(trace)}
            trace.write(Path(self.options.trace).expanduser())
        return trace
