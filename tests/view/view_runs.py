"""Real runs to look at: odd models on threads, with their arrays, as `minitp generate --values` would record them."""
from functools import cache

from minitp.generate import Generation, Request
from minitp.launcher import launch
from minitp.model import Transformer
from minitp.placement import Placement
from minitp.trace import Recorder, Trace, align_clocks, collect, run_info
from minitp.trace.predict import GenerationPlan
from minitp.view.reading import PlayReader
from minitp.view.watch import play
from minitp.weights import load_weights
from tests.families import FAMILIES, source_of
from tests.train.training_runs import traced


def record(comm, family: str, embedding: str, load: str, gathered: bool, prompts, tokens: int) -> Trace | None:
    """Load and generate; the whole trace on rank 0."""
    align_clocks(comm)
    config = FAMILIES[family]
    placement = Placement(config, comm.size, embedding)
    source = source_of(family) if load == "slice" or comm.rank == 0 else None
    weights = load_weights(source, placement, comm, mode=load)
    request = Request(prompts, max_tokens=tokens, gathered=gathered)
    generation = Generation(Transformer(config, placement, comm), weights, request)
    for _ in generation:
        pass
    plan = GenerationPlan(placement, load, "float32", len(prompts), generation.passes, tokens, gathered, False,
                          request.sampling.candidates(placement.vocab))
    pieces = [[f" w{token}" for token in row] for row in generation.tokens]
    header = plan.to_run()
    header["model"]["name"] = family
    return collect(comm, comm.recorder, run_info(
        comm, argv=[], **header, prompts=[list(prompt) for prompt in prompts], tokens=generation.tokens, pieces=pieces,
        prompt_pieces=[[f" p{token}" for token in prompt] for prompt in prompts]))


@cache
def run(family: str = "llama", ranks: int = 3, *, embedding: str = "vocab", load: str = "slice", gathered: bool = True,
        prompts=((3, 1, 4, 1),), tokens: int = 3, values: bool = True) -> Trace:
    """A trace, made once for all tests: they must not change it."""
    traces = launch(lambda comm: record(comm, family, embedding, load, gathered, prompts, tokens), ranks,
                    world="threads", recorder=lambda rank: Recorder(rank, keep_values=values))
    return traces[0]


@cache
def training(ranks: int = 3, between: bool = True, **options) -> Trace:
    """A trace of training steps on threads, `between` them an evaluation and a sample; not to be changed."""
    def recorded(comm) -> Trace | None:
        align_clocks(comm)
        return traced(comm, between=between, **options)

    return launch(recorded, ranks, world="threads", recorder=Recorder)[0]


def read(trace: Trace, **window) -> PlayReader:
    return PlayReader(play(trace, **window))


RUNS = {
    "one rank": {"ranks": 1},
    "uneven heads": {"ranks": 5, "load": "scatter"},                   # 9 heads, 11 ffn, 23 words
    "columns": {"ranks": 3, "embedding": "hidden", "load": "scatter"},
    "tied columns": {"family": "llama-tied", "ranks": 3, "embedding": "hidden"},
    "sharded": {"ranks": 3, "gathered": False},
    "tied columns, sharded": {"family": "gpt2", "ranks": 3, "embedding": "hidden", "gathered": False},
    "batch": {"ranks": 2, "prompts": ((3,), (1, 4, 2), (0, 2, 4, 4, 1))},
    "parallel": {"family": "parallel", "ranks": 3},
    "ranks without heads": {"family": "mqa", "ranks": 5, "prompts": ((3, 1),)},
    "no values": {"ranks": 4, "values": False},
}
