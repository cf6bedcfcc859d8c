"""The model of a row: what its inputs say, and where they are silent the catalogue's model of that name.

Papers call models by short names: "22B" is one thing to Korthikanti et al., "GPT 174.6B" one to Narayanan et al. A
row's source settles which. A bare number of parameters ("530B", with no table of shapes behind it) is just that.
"""
import re
from dataclasses import dataclass, replace
from functools import cached_property

from minitp.config import ModelConfig
from minitp.errors import ConfigError
from minitp.plan.catalogue import model as catalogue_model
from minitp.plan.model import PlannedModel
from minitp.plan.verify.case import Case, CaseError, number
from minitp.trace.wording import plain

PAPERS = (("narayanan", "sc21"), ("korthikanti", "gpt"), ("shoeybi", "megatron"), ("tables.tex", "megatron-2020"),
          ("brown", "gpt-3"))
"""What a source has in it → how the catalogue's names of that paper's models begin."""
NAMES = {"8b-llama": "llama-3.1-8b", "70b-llama": "llama-3.1-70b", "405b-llama": "llama-3.1-405b",
         "zephyr-7b": "mistral-7b", "zephyr-7b-beta": "mistral-7b", "gpt-2-1.5b": "gpt2-xl",
         "540b-multihead": "palm-540b",
         "gpt-175b": "gpt-3-175b", "gpt-530b": "mt-nlg-530b", "gpt-1t": "sc21-1008b", "sc21-174.6b": "gpt-3-175b",
         "sc21-1008.0b": "sc21-1008b", "sc21-530b": "sc21-529.6b"}
"""Names of sources that differ from the catalogue's. Zephyr is Mistral's shape, fine-tuned."""
PARAMETERS_ALONE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s?([MBT])(?: LLM| multihead)?", re.IGNORECASE)
COUNTED_THROUGH = ("layers", "heads", "kv_heads")
DTYPES = re.compile(r"[ -](q40|q80|q4_0|q8_0|int8|int4|fp8|fp16|bf16|f32)$")


@dataclass(frozen=True)
class Shape:
    """The sizes of a case's model, each from the row's inputs, its named model, or what follows from the others."""
    case: Case

    @cached_property
    def named(self) -> PlannedModel | None:
        """The catalogue's model of this name; None where there is none."""
        for name in names(self.case):
            try:
                return catalogue_model(name)
            except ConfigError:
                continue
        return None

    @cached_property
    def base(self) -> PlannedModel | None:
        """The same, if the row doesn't say that its model is another size."""
        if self.named and "hidden" in self.case.inputs and self._given("hidden") != self.named.config.hidden:
            return None
        return self.named

    def _given(self, key: str) -> int:
        return self.case.inputs.degree(key) if key in COUNTED_THROUGH else self.case.inputs.whole(key)

    def _of(self, key: str, field: str = "") -> int | None:
        if key in self.case.inputs:
            return self._given(key)
        return getattr(self.base.config, field or key) if self.base else None

    def _need(self, key: str, field: str = "") -> int:
        value = self._of(key, field)
        if value is None:
            raise CaseError(f"the input {key} is missing, and {plain(self.case.model, 40)!r} is no model of the "
                            "catalogue")
        return value

    @property
    def hidden(self) -> int:
        inputs = self.case.inputs
        if "hidden" not in inputs and self.named is None and inputs.has("head_dim") and (
                "heads" in inputs or "kv_heads" in inputs):
            return self._given("heads" if "heads" in inputs else "kv_heads") * self._given("head_dim")
        return self._need("hidden")

    @property
    def layers(self) -> int:
        return self._need("layers")

    @property
    def heads(self) -> int:
        return self._need("heads")

    @property
    def vocab(self) -> int:
        return self._need("vocab")

    @property
    def seq(self) -> int:
        """Tokens of a sequence: the row's, or as many positions as the model has learned: what it trained on."""
        if "seq" not in self.case.inputs and self.base is not None and not self.base.config.learned_positions:
            raise CaseError("the input seq is missing: a model with rotary positions takes any")
        return self._need("seq", "positions")

    @property
    def kv_dim(self) -> int:
        """kv heads times head size: the width of K, and of V. Without a word about heads as wide as hidden."""
        inputs = self.case.inputs
        if "kv_dim" in inputs:
            return self._given("kv_dim")
        kv_heads = self._of("kv_heads") or self._of("heads")
        if kv_heads is None:
            return self.hidden
        if "heads" in inputs and "kv_heads" not in inputs:            # a variant of a model with heads of its own
            kv_heads = self._given("heads")
        return kv_heads * self.head_dim

    @property
    def head_dim(self) -> int:
        if "head_dim" in self.case.inputs or (self.base and "heads" not in self.case.inputs):
            return self._need("head_dim", "head_size")
        if self.hidden % self.heads:
            raise CaseError(f"{self.heads} heads don't divide hidden = {self.hidden}: head_dim is needed")
        return self.hidden // self.heads

    @property
    def ffn(self) -> int:
        """A number, or times hidden: "4d SwiGLU"."""
        text = self.case.inputs.text("ffn")
        if found := re.match(r"([0-9.]+)[dh]\b", text):
            return round(float(found[1]) * self.hidden)
        if text:
            return self._given("ffn")
        return self.base.config.ffn if self.base else 4 * self.hidden

    @cached_property
    def planned(self) -> PlannedModel:
        """A model to ask the placement about. CaseError where the row and its name don't say enough."""
        described = [key for key in ("hidden", "layers", "heads", "kv_heads", "head_dim", "ffn", "vocab", "positions",
                                     "tied", "experts") if key in self.case.inputs]
        if self.named is not None and not described:
            return self.named
        config = self._config()
        if self.base is None:
            learned = "positions" in self.case.inputs or "seq" in self.case.inputs
            return PlannedModel(config, alibi=config.rotary is None and not learned)
        return replace(self.base, config=config)

    def gpt_layer(self, tp: int) -> PlannedModel:
        """One layer of a GPT of this width and these heads. Where none are named as many as tp: only scores ask."""
        heads = self._of("heads") or tp
        if self.hidden % heads:
            raise CaseError(f"{heads} heads don't divide hidden = {self.hidden}")
        gpt = catalogue_model("gpt-3-175b")
        return replace(gpt, config=replace(gpt.config, layers=1, hidden=self.hidden, heads=heads, kv_heads=heads,
                                           head_size=self.hidden // heads, ffn=4 * self.hidden))

    def _config(self) -> ModelConfig:
        """GPT's family, or Llama's where the row tells of a gate, of few kv heads or of a narrower ffn."""
        inputs, hidden = self.case.inputs, self.hidden
        like = (self.named or catalogue_model("llama-7b" if self._gated() else "gpt-3-175b")).config
        heads, kv_heads, size = self._attention(hidden)
        return replace(like, name=plain(self.case.model, 60), hidden=hidden, layers=self.layers, heads=heads,
                       kv_heads=kv_heads, head_size=size, ffn=self.ffn, vocab=self._of("vocab") or like.vocab,
                       positions=self._of("positions") or self._of("seq", "positions") or like.positions,
                       gated=like.gated or "glu" in inputs.text("ffn").lower(),
                       tied=inputs.flag("tied", like.tied))

    def _attention(self, hidden: int) -> tuple[int, int, int]:
        """Heads, kv heads, head size. Where heads aren't told, or don't divide hidden (tables have misprints), one head
        as wide as hidden counts as many numbers."""
        heads = self._of("heads")
        if heads is None or ("head_dim" not in self.case.inputs and self.base is None and hidden % heads):
            return 1, 1, hidden
        if "kv_heads" in self.case.inputs or (self.base and "heads" not in self.case.inputs):
            return heads, self._need("kv_heads"), self.head_dim
        return heads, heads, self.head_dim

    def _gated(self) -> bool:
        ffn = self.case.inputs.text("ffn")
        return bool(ffn) and ("glu" in ffn.lower() or number(ffn.split("d")[0], "ffn") != 4 * self.hidden)

    @cached_property
    def parameters(self) -> float:
        """`params`, or counted, or the number that is the model's name."""
        inputs = self.case.inputs
        if "params" in inputs:
            return inputs.positive("params")
        if inputs.has("hidden", "layers", "vocab"):
            return self.planned.parameters
        if found := PARAMETERS_ALONE.fullmatch(self.case.model.strip()):
            return float(found[1]) * {"M": 1e6, "B": 1e9, "T": 1e12}[found[2].upper()]
        if self.named:
            return self.planned.parameters
        raise CaseError(f"how many parameters has {plain(self.case.model, 40)!r}? It is no model of the catalogue: "
                        "params is needed, or hidden, layers and vocab")


def names(case: Case) -> list[str]:
    """What the catalogue may call a row's model, the likeliest first."""
    text = DTYPES.sub("", case.model.strip().lower().removesuffix(" one layer"))
    name = "-".join(text.replace("_", "-").split())
    if not re.fullmatch(r"[a-z0-9][a-z0-9.+-]{0,60}", name) or name in ("any", "max-size"):
        return []
    tail = name.removeprefix("gpt-").removesuffix("-llm")
    source = case.source.lower()
    called = [*(f"{paper}-{tail}" for word, paper in PAPERS if word in source), name,
              *([f"sc21-{tail}"] if name.startswith("gpt-") else [])]
    return [NAMES.get(one, one) for one in called]
