"""Run the bundled model here and now on several numbers of ranks, and keep the logits: a comparison for real.

The ranks are threads of this process, so it needs no MPI; their times are no speed.
"""
from collections.abc import Sequence

import numpy as np

from minitp.checkpoint import open_checkpoint
from minitp.comm import Communicator
from minitp.config import TINY
from minitp.errors import ConfigError
from minitp.generate import Generation, Request
from minitp.generate import run as run_to_the_end
from minitp.launcher import launch
from minitp.model import Transformer
from minitp.models import Bundled
from minitp.placement import Placement
from minitp.tokenizer import ByteTokenizer
from minitp.trace.file import Trace
from minitp.trace.merge import collect, run_info
from minitp.trace.predict import GenerationPlan
from minitp.trace.recorder import Recorder
from minitp.trace.timeline import Timeline
from minitp.view.compare import Run
from minitp.weights import load_weights

RANKS = (1, 2, 3, 4, 8)
LONGEST = 64                       # bytes of a prompt, and new tokens: it runs while a page waits


def rerun(prompt: str, max_tokens: int = 12, ranks: Sequence[int] = RANKS) -> list[Run]:
    """The tiny model continues `prompt` on each number of ranks, with the logits of every position."""
    ids = tuple(ByteTokenizer().encode(prompt))
    if len(ids) > LONGEST:
        raise ConfigError(f"a prompt here has at most {LONGEST} bytes, and this one has {len(ids)}: shorten it")
    request = Request(prompts=(ids,), max_tokens=min(max_tokens, LONGEST), keep_logits=True)
    request.check(TINY.vocab, TINY.positions)
    return [_on(n, request) for n in ranks]


def _on(ranks: int, request: Request) -> Run:
    trace, logits = launch(lambda group: _rank(group, request), ranks, world="threads", recorder=Recorder,
                           run_deadline=60.0)[0]
    return Run(f"tiny on {ranks}", Timeline.of(trace), logits)


def _rank(group: Communicator, request: Request) -> tuple[Trace | None, np.ndarray]:
    placement = Placement(TINY, group.size)
    model = Transformer(TINY, placement, group)
    source = open_checkpoint(Bundled("tiny").folder)
    weights = load_weights(source, placement, group, mode="slice", dtype=np.dtype(np.float32))
    generation = Generation(model, weights, request)
    tokens = run_to_the_end(generation)
    plan = GenerationPlan(placement, "slice", str(generation.dtype), 1, generation.passes, len(tokens[0]),
                          every_row=True)
    info = run_info(group, argv=[], **plan.to_run(), prompts=list(request.prompts[0]), tokens=tokens[0])
    return collect(group, group.recorder, info, generation.held()), generation.kept_logits()
