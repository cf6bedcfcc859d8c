"""Make `lessons/cheat_sheet.md`: `python -m tests.make_cheat_sheet`. Every number on it is computed here."""
from dataclasses import replace
from pathlib import Path
from typing import Any

from minitp.config import TINY, ModelConfig
from minitp.placement import Placement
from minitp.plan import catalogue
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import named
from minitp.plan.units import both, duration
from minitp.trace.predict import GenerationPlan, predict
from minitp.trace.predict_training import step_form
from minitp.trace.wording import size

FILE = Path(__file__).parents[1] / "lessons" / "cheat_sheet.md"

TEXT = """# Tensor parallelism on one page

Every number here is computed (`python -m tests.make_cheat_sheet`); times and layouts are a model.

**The idea.** A big matrix is cut over ranks. Multiplying changes an array's state for free; changing it back costs a
sync.

| state | meaning | comes from | back to whole |
|---|---|---|---|
| whole | every rank has the same array | | |
| shard | every rank has its slice | whole · W cut by columns | all-gather |
| partial | full shape, one term of a sum | shard · W cut by rows | all-reduce |
| on root | one rank has it | a file, a reduce | broadcast |

**The sum can't wait:** act(a + b) ≠ act(a) + act(b). So: column cut, activation on the shard, row cut, one sync.
Heads are the column cut of attention: computed apart, summed by the output projection. **Backward** is the mirror: f,
before a column cut, is nothing forward and an all-reduce backward; g, after a row cut, the other way round.

**How many syncs?** 2L + 2 a *pass*, whatever it carries: {smollm2} for SmolLM2-135M ({smollm2_layers} layers), {llama}
for Llama-2-70B ({llama_layers}). With attention and MLP side by side L + 2: {parallel} instead of {tiny} for
{tiny_layers} layers. A training step of these {tiny_layers}: {forward} forward, {loss} for the loss, {backward}
backward.

**What does one cost?** It carries a token's hidden vector ({payload} for SmolLM2 in float32), and waits. For
Llama-2-70B in bf16: {sync_cost}

**Who moves?** Tensor parallelism and pipelines move activations, ZeRO-3 weights: for a token of Llama-2-70B
{token_sent} a card against {weights_moved}.

**Memory.** To run: 2 bytes a parameter in bf16. To train: {states:.0f}, {states18:.0f} or {states20:.0f} by scheme,
before activations. 175B × (2 + 2) = {said} is right and not enough: {bytes16} to {bytes18} of states, {cards16real:.0f}
to {cards18:.0f} cards.

| how many cards of 80 GB? | |
|---|---|
| LLaMA-65B, to run in bf16 | {llama65:.0f} by bytes |
| Llama-3.1-405B, to run in bf16 | {llama405:.0f} by bytes, {llama405machines:.0f} as machines |
| Llama-3.1-405B, the states of training | {train405:.0f} |
| GPT-3 in {gpt3days:.0f} days | 400 A100 (140 TFLOP/s, with recomputation) |

**Where?** A token's {llama} syncs over 8 cards take {inside} inside a machine and {between} over 1 GbE: tensor
parallelism stays inside, pipelines and data parallelism go between. A switch adds {hop} to the {plain} that a token
waits over RDMA; what hurts is software: over TCP it is {tcp}.

**Not along time?** A new token has no time axis to cut; the cache behind it has.

**It hangs?** Ranks that wait are healthy: look for the one that is elsewhere. `minitp trace show FILE` names it, for
`--trace FILE` keeps what there is of a run that failed, too.
"""


def text() -> str:
    smollm2, llama = (catalogue.model(name).config for name in ("smollm2-135m", "llama-2-70b"))
    step = step_form(Placement(TINY, 3))
    two, ten, biggest, moved, where, switch = map(numbers, (
        "two-machines", "ten-to-twenty", "biggest-llama", "what-moves", "inside-a-machine", "switch"))
    return TEXT.format(
        smollm2=len(token(smollm2)), smollm2_layers=smollm2.layers, llama=len(token(llama)), llama_layers=llama.layers,
        parallel=len(token(replace(TINY, parallel_block=True))), tiny=len(token(TINY)), tiny_layers=TINY.layers,
        forward=step["forward"], loss=step["loss"], backward=step["backward"], payload=size(token(smollm2)[1].payload),
        states=ten["states"], states18=ten["states fp32 gradients"], states20=ten["states zero-2"],
        said=both(two["bytes said"]), bytes16=both(two["bytes 16"]), bytes18=both(two["bytes 18"]),
        cards16real=two["cards 16 real"], cards18=two["cards 18"], llama65=biggest["llama-65b bf16 cards by bytes"],
        llama405=biggest["llama-3.1-405b bf16 cards by bytes"],
        llama405machines=biggest["llama-3.1-405b bf16 cards as machines"], train405=numbers("train-biggest")["floor"],
        gpt3days=numbers("gpt-3")["A100 days"], sync_cost=cost(), token_sent=both(moved["token sent"]),
        weights_moved=both(moved["weights moved"]), inside=duration(where["inside s"]),
        between=duration(where["1 GbE library"]), hop=duration(switch["hop s"]), plain=duration(switch["plain s"]),
        tcp=duration(switch["tcp s"]))


def cost() -> str:
    """The answer to what a sync costs, without its first words, which stand here already."""
    return named(QUESTIONS, "sync-cost").ask().short.partition(": ")[2]


def token(config: ModelConfig) -> list[Any]:
    """The sync points of one token on any number of ranks."""
    return predict(GenerationPlan(Placement(config, 2), "slice", "float32", 1, [("decode", 1)], 0, True))


def numbers(question: str) -> dict[str, float]:
    return named(QUESTIONS, question).ask().numbers


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
