"""`minitp generate`: the prompts in, the text out as it comes, and the record of every collective if asked for."""
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from minitp.comm import Communicator
from minitp.comm.broken import BrokenCommunicator
from minitp.commands.json_lines import JsonLines
from minitp.commands.prompts import PromptSource
from minitp.commands.session import ModelOptions, Session, open_generation
from minitp.environment import is_first_rank, is_unicode
from minitp.errors import ConfigError
from minitp.files import replacing
from minitp.generate import Generation, Request
from minitp.sampling import Sampling
from minitp.trace.predict import GenerationPlan
from minitp.trace.recorder import Recorder
from minitp.trace.wording import count, sites_in_words


@dataclass(frozen=True)
class GenerateOptions:
    """Everything `minitp generate` was asked for."""
    prompts: PromptSource
    model: ModelOptions = field(default_factory=ModelOptions)
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int = 64
    sharded_logits: bool = False
    logits: str | None = None            # file for the logits of every position
    trace: str | None = None
    values: bool = False
    show_comm: bool = False
    as_json: bool = False
    json_lines: bool = False
    breaks: tuple[str, ...] = ()         # sites whose all-reduce is skipped on purpose

    def __post_init__(self):
        if is_first_rank():                # only rank 0 writes; another may be on a machine without that folder
            check_targets({"--logits": self.logits, "--trace": self.trace})

    @property
    def communicator(self) -> type[Communicator]:
        """The class of the ranks' communicators."""
        return BrokenCommunicator if self.breaks else Communicator

    def recorder(self, rank: int) -> Recorder:
        """Rank r's recorder; rank 0's also shows its events live where that is wanted."""
        from minitp.trace.live import ShowComm
        listener = ShowComm(sys.stderr) if self.show_comm and rank == 0 else None
        return Recorder(rank, keep_values=self.values and self.trace is not None, listener=listener)


def check_targets(files: dict[str, str | None]) -> None:
    """Refuse what can't be written before anything is computed: no folder, a folder, one file for two things."""
    given = {name: Path(file).expanduser().resolve() for name, file in files.items() if file is not None}
    for name, path in given.items():
        if not files[name] or path.is_dir():
            raise ConfigError(f"{name} takes the name of a file; {files[name]!r} is none")
        if not path.parent.is_dir():
            raise ConfigError(f"{name} {files[name]}: there is no folder {path.parent}")
    if len(set(given.values())) < len(given):
        raise ConfigError(f"{' and '.join(given)} name the same file: one would overwrite the other")


def generate(group: Communicator, options: GenerateOptions) -> dict[str, Any]:
    """On every rank: load, generate, print on rank 0, write what was asked for. Returns the JSON row."""
    from minitp.trace.merge import align_clocks
    if options.trace or options.show_comm:
        align_clocks(group)
    session, request = open_generation(
        group, options.model, options.prompts, options.breaks, max_tokens=options.max_tokens, sampling=options.sampling,
        gathered=not options.sharded_logits, keep_logits=options.logits is not None)
    generation = Generation(session.model, session.weights, request, dtype=np.dtype(options.model.dtype),
                            arrays=group.arrays)
    silent = options.as_json or options.json_lines or group.rank > 0
    printer = Printer(session, len(request.prompts), out=None if silent else sys.stdout,
                      streaming=not options.show_comm)
    lines = JsonLines(sys.stdout, group.recorder) if options.json_lines and group.rank == 0 else None
    if lines is not None:
        lines.loaded(session.name, group.size, group.transport.world, [len(prompt) for prompt in request.prompts])
    group.recorder.about = lambda: _header(options, session, generation, printer.texts())
    times = [time.perf_counter()]
    for step in generation:
        pieces = printer.show(step.tokens)
        times.append(time.perf_counter())
        if lines is not None:
            lines.step(step.index, step.tokens, pieces)
    printer.finish()
    if lines is not None:
        lines.generated(generation.tokens)
    row = result_row(session, generation, times, printer.texts())
    _write_record(options, session, generation, printer.texts())
    if group.rank == 0:
        if lines is not None:
            lines.write(row)
        elif options.as_json:
            print(json.dumps(row, ensure_ascii=not is_unicode(sys.stdout)))
        elif not options.show_comm:
            print(f"\n{summary_line(row)}", file=sys.stderr)
    return row


class Printer:
    """Text on the screen: of one prompt as it comes; of several, or between lines of `--show-comm`, at the end."""

    def __init__(self, session: Session, prompts: int, out: TextIO | None, streaming: bool = True):
        self.out, self.tokenizer, self.streaming = out, session.tokenizer, streaming and prompts == 1
        self.streams = [self.tokenizer.stream() if self.tokenizer else None for _ in range(prompts)]
        self.pieces: list[list[str]] = [[] for _ in range(prompts)]

    def show(self, tokens: tuple[int | None, ...]) -> list[str]:
        """What these tokens add to each prompt's text: perhaps nothing, where a character takes several."""
        added = [""] * len(tokens)
        for row, token in enumerate(tokens):
            if token is not None:
                stream = self.streams[row]
                added[row] = f"{token} " if stream is None else stream.feed(token)
                self._add(row, added[row])
        return added

    def finish(self) -> None:
        for row, stream in enumerate(self.streams):
            if stream is not None:
                self._add(row, stream.finish())
        if self.out is None:
            return
        if len(self.pieces) > 1:
            self.out.writelines(f"[{row}] {text}\n" for row, text in enumerate(self.texts()))
        else:
            self.out.write("\n" if self.streaming else f"{self.texts()[0]}\n")
        self.out.flush()

    def texts(self) -> list[str]:
        return ["".join(pieces) for pieces in self.pieces]

    def _add(self, row: int, text: str) -> None:
        self.pieces[row].append(text)
        if self.out is not None and self.streaming and text:
            self.out.write(text)
            self.out.flush()


def result_row(session: Session, generation: Generation, times: list[float], texts: list[str]) -> dict[str, Any]:
    """What `--json` prints. Of one prompt the values themselves, of several a list of each.

    prefill_seconds    from the loaded model to the first token; starting ranks and loading come before it, and
                       `minitp bench load` measures them
    tokens_per_second  of the tokens after the first
    """
    events = session.group.recorder.events
    syncs = sum(event.plane == "data" and event.phase != "load" and not event.broken for event in events)
    decoding = times[-1] - times[1] if len(times) > 2 else None
    decoded = sum(len(row) for row in generation.tokens) - len(generation.tokens)
    return {
        "model": session.name, "ranks": session.group.size, "world": session.group.transport.world,
        "prompt_tokens": _each([list(prompt) for prompt in generation.request.prompts]),
        "tokens": _each(generation.tokens), "text": _each(texts), "stop": _each(list(generation.stops)),
        "sync_points_per_token": syncs // len(generation.passes),
        "smallest_gap": _each([gap if np.isfinite(gap) else None for gap in generation.gaps]),
        "prefill_seconds": times[1] - times[0] if len(times) > 1 else None,
        "tokens_per_second": decoded / decoding if decoding and decoded else None,
        "dtype": str(generation.dtype), "broken": list(session.broken),
    }


def _each(values: list) -> Any:
    """Of one prompt its value, of several the list."""
    return values[0] if len(values) == 1 else values


def summary_line(row: dict[str, Any]) -> str:
    """One line under the text."""
    several = row["tokens"] and isinstance(row["tokens"][0], list)
    tokens = count(sum(map(len, row["tokens"])) if several else len(row["tokens"]), "token")
    gap = row["smallest_gap"]
    smallest = min((g for g in (gap if isinstance(gap, list) else [gap]) if g is not None), default=None)
    shown = row["tokens_per_second"] is not None and (row["world"] == "mpi" or row["ranks"] == 1)
    speed = f", {row['tokens_per_second']:.1f} tokens/s" if shown else ""          # thread ranks are not a speed
    apart = "" if smallest is None else f", best and second logit at least {smallest:.3g} apart"
    ranks = f"{count(row['ranks'], 'rank')} ({row['world']})"
    broken = f"; broken on purpose at {sites_in_words(row['broken'])}" if row["broken"] else ""
    syncs = count(row["sync_points_per_token"], "sync point")
    return f"[{row['model']} on {ranks}: {tokens}, {syncs} each{speed}{apart}{broken}]"


def _write_record(options: GenerateOptions, session: Session, generation: Generation, texts: list[str]) -> None:
    """The trace and the logits, on rank 0; `--show-comm` ends with the share of waiting."""
    from minitp.tokenizer import piece
    from minitp.trace.kept import named_tokens
    from minitp.trace.live import ShowComm
    from minitp.trace.merge import collect, run_info
    if options.logits is not None and session.group.rank == 0:
        with replacing(Path(options.logits).expanduser()) as file:
            np.save(file, generation.kept_logits(), allow_pickle=False)
    if not (options.trace or options.show_comm):
        return
    info = run_info(session.group, **_header(options, session, generation, texts))
    trace = collect(session.group, session.group.recorder, info, generation.held())
    if trace is None:
        return
    if session.tokenizer is not None and options.values:
        trace.run["words"] = {str(token): piece(session.tokenizer, token) for token in named_tokens(trace)}
    if options.trace:
        trace.write(Path(options.trace).expanduser())
    if isinstance(session.group.recorder.listener, ShowComm):
        session.group.recorder.listener.finish(trace)


def _header(options: GenerateOptions, session: Session, generation: Generation, texts: list[str]) -> dict[str, Any]:
    """What the trace's header says of the run: of one that fails, as far as it has come."""
    described = plan_of(options, session, generation).to_run()
    described["model"]["name"] = session.name
    described["generation"]["slots"] = generation.cache.slots
    prompts = [list(prompt) for prompt in generation.request.prompts]
    return described | {"prompts": _each(prompts), "tokens": _each(generation.tokens),
                        "prompt_pieces": _pieces(session, prompts), "pieces": _pieces(session, generation.tokens),
                        "text": _each(texts)}


def plan_of(options: GenerateOptions, session: Session, generation: Generation) -> GenerationPlan:
    """What the closed form needs to foretell this run's collectives."""
    request: Request = generation.request
    return GenerationPlan(session.placement, options.model.load, str(generation.dtype), len(request.prompts),
                          generation.passes, max(map(len, generation.tokens)), request.gathered, request.keep_logits,
                          request.sampling.candidates(session.placement.vocab), session.broken)


def _pieces(session: Session, rows: Sequence[Sequence[int]]) -> list[list[str]]:
    """Each token as a word of its own, for pictures."""
    from minitp.tokenizer import piece
    tokenizer = session.tokenizer
    return [] if tokenizer is None else [[piece(tokenizer, token) for token in row] for row in rows]
