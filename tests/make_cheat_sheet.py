"""Make `lessons/cheat_sheet.md`: `python -m tests.make_cheat_sheet`. Every number on it is computed here."""
from dataclasses import replace
from pathlib import Path
from typing import Any

from minitp.config import TINY, ModelConfig
from minitp.placement import Placement
from minitp.plan import catalogue
from minitp.plan.questions import QUESTIONS
from minitp.plan.questions.base import named
from minitp.plan.units import both
from minitp.trace.predict import GenerationPlan, predict
from minitp.trace.predict_training import step_form
from minitp.trace.wording import size

FILE = Path(__file__).parents[1] / "lessons" / "cheat_sheet.md"

TEXT = """# Tensor parallelism on one page

Every number below is computed by minitp (`python -m tests.make_cheat_sheet`); times and layouts are a model.

**The idea.** A big matrix is cut over ranks. Multiplying changes an array's state for free; changing it back costs a
sync.

| state | meaning | comes from | back to whole |
|---|---|---|---|
| whole | every rank has the same array | | |
| shard | every rank has its slice | whole · W cut by columns | all-gather |
| partial | full shape, one term of a sum | shard · W cut by rows | all-reduce |
| on root | one rank has it | a file, a reduce | broadcast, scatter |

**Why the sum can't wait:** act(a + b) ≠ act(a) + act(b). So: column cut, activation on the shard, row cut, one sync.
Heads are the column cut of attention: computed apart, then summed by the output projection.

| | forward | backward |
|---|---|---|
| f, before a column cut | nothing | all-reduce |
| g, after a row cut | all-reduce | nothing |

**How many syncs?** Two a layer and two at the ends, 2L + 2 a *pass*: {smollm2} for SmolLM2-135M
({smollm2_layers} layers), {llama} for Llama-2-70B ({llama_layers}), whether the pass carries one token, a prompt, or a
batch. About one a layer only where attention and MLP stand side by side: {parallel} instead of {tiny} for
{tiny_layers} layers. A training step of these {tiny_layers}, without recomputation: {forward} forward, {loss} for the
loss, {backward} backward.

**What does one carry?** One token's hidden vector: {payload} for SmolLM2 in float32. {sync_cost}

{moves}

**Memory.** To run: 2 bytes a parameter in bf16. To train: {states:.0f}, {states18:.0f} or {states20:.0f} by scheme,
before activations. 175B × (2 + 2) = {said} is right and not enough: {bytes16} to {bytes18} of states,
{cards16real:.0f} to {cards18:.0f} cards.

| how many GPUs? | cards of 80 GB |
|---|---|
| LLaMA-65B, to run in bf16 | {llama65:.0f} by bytes |
| Llama-3.1-405B, to run in bf16 | {llama405:.0f} by bytes, {llama405machines:.0f} as whole machines |
| Llama-3.1-405B, states of training | {train405:.0f} |
| GPT-3 in {gpt3days:.0f} days | 400 A100 (at the published 140 TFLOP/s, with recomputation) |

{inside}

{switch}

{time}
"""


def text() -> str:
    smollm2, llama = (catalogue.model(name).config for name in ("smollm2-135m", "llama-2-70b"))
    step = step_form(Placement(TINY, 3))
    two, ten, biggest = (numbers(name) for name in ("two-machines", "ten-to-twenty", "biggest-llama"))
    return TEXT.format(
        smollm2=len(token(smollm2)), smollm2_layers=smollm2.layers, llama=len(token(llama)), llama_layers=llama.layers,
        parallel=len(token(replace(TINY, parallel_block=True))), tiny=len(token(TINY)), tiny_layers=TINY.layers,
        forward=step["forward"], loss=step["loss"], backward=step["backward"], payload=size(token(smollm2)[1].payload),
        states=ten["states"], states18=ten["states fp32 gradients"], states20=ten["states zero-2"],
        said=both(two["bytes said"]), bytes16=both(two["bytes 16"]), bytes18=both(two["bytes 18"]),
        cards16real=two["cards 16 real"], cards18=two["cards 18"], llama65=biggest["llama-65b bf16 cards by bytes"],
        llama405=biggest["llama-3.1-405b bf16 cards by bytes"],
        llama405machines=biggest["llama-3.1-405b bf16 cards as machines"], train405=numbers("train-biggest")["floor"],
        gpt3days=numbers("gpt-3")["A100 days"], sync_cost=named(QUESTIONS, "sync-cost").ask().short,
        moves=answered("what-moves"), inside=answered("inside-a-machine"), switch=answered("switch"),
        time=answered("embedding-or-time"))


def token(config: ModelConfig) -> list[Any]:
    """The sync points of one token on any number of ranks."""
    return predict(GenerationPlan(Placement(config, 2), "slice", "float32", 1, [("decode", 1)], 0, True))


def numbers(question: str) -> dict[str, float]:
    return named(QUESTIONS, question).ask().numbers


def answered(question: str) -> str:
    one = named(QUESTIONS, question)
    return f"**{one.text}** {one.ask().short}"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
