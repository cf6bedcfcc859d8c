"""What a training run was asked for: sections of a TOML file, under the options of the command line; checked.

    [model]      name = "tiny", other sizes over it (layers = 4); or family = "llama" | "gpt2" and its sizes; or from =
                 a checkpoint to go on from
    [data]       text = a file, a folder, "pydoc_data.topics"; tokenizer = "bytes" | "bpe" (vocab = …); validation = …
    [train]      steps, batch, tokens, micro_batches, seed, dtype, recompute, dropout, label_smoothing
    [optimizer]  rate, min_rate, warmup, beta1, beta2, eps, decay, clip
    [cut]        embedding, cut
    [run]        folder, save_every, keep, evaluate_every, evaluate_batches, sample_every, sample_prompt, …

Everything is checked from the settings alone, before any file but the settings' own is read. A setting that isn't known
and a value that can't be are refused by name, with what would work.
"""
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from minitp.config import TINY, ModelConfig, RotaryConfig
from minitp.errors import ConfigError
from minitp.trace.wording import plain
from minitp.train.rules import Flag, Number, OneOf, Text, Whole, checked, setting

BYTES = 256                             # tokens of the byte tokenizer
LARGEST = 1 << 20                       # bytes of a file of settings
SIZES = ("hidden", "layers", "heads", "kv_heads", "head_size", "ffn", "positions")


@dataclass(frozen=True)
class ModelSettings:
    """Which model. Of a family hidden, layers and heads must be given; what else is left out follows from them."""
    name: str | None = setting(None, OneOf(("tiny",)))
    family: str | None = setting(None, OneOf(("llama", "gpt2")))
    from_: str | None = setting(None, Text("a checkpoint: a folder, a .gguf file, or a model's name"))
    hidden: int | None = setting(None, Whole(1, 1 << 24))
    layers: int | None = setting(None, Whole(1, 10_000))
    heads: int | None = setting(None, Whole(1, 1 << 16))
    kv_heads: int | None = setting(None, Whole(1, 1 << 16))
    head_size: int | None = setting(None, Whole(1, 1 << 16))
    ffn: int | None = setting(None, Whole(1, 1 << 24))
    positions: int | None = setting(None, Whole(1, 1 << 24))
    tied: bool | None = setting(None, Flag())
    rotary_theta: float | None = setting(None, Number(0, above=True))
    parallel_block: bool | None = setting(None, Flag())

    def __post_init__(self):
        sources = [word for word, given in (("name", self.name), ("family", self.family), ("from", self.from_))
                   if given is not None]
        if len(sources) > 1:
            raise ConfigError(f"[model] takes one of name, family and from, not {' and '.join(sources)}")
        given = [f.name for f in fields(self) if f.name not in ("name", "family", "from_")
                 and getattr(self, f.name) is not None]
        if self.from_ is not None and given:
            raise ConfigError(f"[model] from takes the sizes of its checkpoint: leave out {', '.join(given)}")
        if self.family is not None:
            missing = [size for size in ("hidden", "layers", "heads") if getattr(self, size) is None]
            if missing:
                raise ConfigError(f"[model] family = {self.family!r} needs {', '.join(missing)} too")
        if self.family == "gpt2" and self.rotary_theta is not None:
            raise ConfigError("[model] rotary_theta is of the llama family: gpt2 learns a table of positions")

    def config(self, vocab: int, tokens: int) -> ModelConfig:
        """The model for a vocabulary and a training length; not of a checkpoint, which brings its own."""
        given: dict[str, Any] = {size: getattr(self, size) for size in (*SIZES, "tied", "parallel_block")
                                 if getattr(self, size) is not None}
        if self.rotary_theta is not None:
            given["rotary"] = RotaryConfig(theta=self.rotary_theta)
        if self.family is None:
            return replace(TINY, vocab=vocab, **given)
        return self._of_family(vocab, tokens, given)

    def _of_family(self, vocab: int, tokens: int, given: dict[str, Any]) -> ModelConfig:
        hidden, heads = given["hidden"], given["heads"]
        if "head_size" not in given and hidden % heads:
            raise ConfigError(f"[model] hidden {hidden} is no multiple of heads {heads}: set head_size too")
        shape: dict[str, Any] = {"kv_heads": heads, "head_size": max(1, hidden // heads), "positions": tokens,
                                 "name": self.family}
        if self.family == "gpt2":
            shape |= {"ffn": 4 * hidden, "norm": "layer", "activation": "gelu_tanh", "gated": False, "rotary": None,
                      "tied": True, "qkv_bias": True, "attention_bias": True, "mlp_bias": True}
        else:                                             # as many weights in three matrices as 4·D in two
            shape |= {"ffn": -(-8 * hidden // 3 // 8) * 8}
        return ModelConfig(**{**shape, **given, "vocab": vocab})


@dataclass(frozen=True)
class DataSettings:
    text: str = setting("pydoc_data.topics", Text("a text file, a folder of them, or pydoc_data.topics"))
    tokenizer: str | None = setting(None, OneOf(("bytes", "bpe", "model")))
    vocab: int | None = setting(None, Whole(BYTES + 1, 1 << 20))
    validation: float = setting(0.05, Number(0, 0.5))

    def __post_init__(self):
        if self.tokenizer == "bpe" and self.vocab is None:
            raise ConfigError("[data] tokenizer = 'bpe' needs vocab, how many tokens it may learn: 512, say")
        if self.tokenizer != "bpe" and self.vocab is not None:
            raise ConfigError("[data] vocab is of tokenizer = 'bpe'; of bytes there are 256, and a model's are known")


@dataclass(frozen=True)
class StepSettings:
    steps: int = setting(200, Whole(1))
    batch: int = setting(16, Whole(1, 1 << 24))
    tokens: int = setting(64, Whole(1, 1 << 24))
    micro_batches: int = setting(1, Whole(1))
    seed: int = setting(0, Whole())
    dtype: str = setting("float32", OneOf(("float32", "float64", "bf16")))
    recompute: str = setting("none", OneOf(("none", "selective", "full")))
    dropout: float = setting(0.0, Number(0, 1, below=True))
    label_smoothing: float = setting(0.0, Number(0, 1, below=True))

    def __post_init__(self):
        if self.micro_batches > self.batch:
            raise ConfigError(f"[train] micro_batches {self.micro_batches} are more than batch {self.batch} has "
                              "sequences: one sequence each is the least")


@dataclass(frozen=True)
class OptimizerSettings:
    """AdamW and its schedule. `warmup` left out is a tenth of the steps; `clip` 0: gradients are not clipped."""
    rate: float = setting(3e-3, Number(0, above=True))
    min_rate: float = setting(0.0, Number(0))
    warmup: int | None = setting(None, Whole(0))
    beta1: float = setting(0.9, Number(0, 1, below=True))
    beta2: float = setting(0.95, Number(0, 1, below=True))
    eps: float = setting(1e-8, Number(1e-30))            # a smaller one would be 0 in float32: 0 / 0 where g is 0
    decay: float = setting(0.1, Number(0))
    clip: float = setting(1.0, Number(0))

    def __post_init__(self):
        if self.min_rate > self.rate:
            raise ConfigError(f"[optimizer] min_rate {self.min_rate:g} lies above rate {self.rate:g}, from which it "
                              "is to fall")


@dataclass(frozen=True)
class CutSettings:
    embedding: str = setting("vocab", OneOf(("vocab", "hidden")))
    cut: str = setting("even", OneOf(("even", "balanced")))


@dataclass(frozen=True)
class RunSettings:
    """Where the run lies (left out: runs/ and the model's name) and what it does now and then; 0 is never."""
    folder: str | None = setting(None, Text("a folder"))
    save_every: int = setting(100, Whole(0))
    keep: int = setting(2, Whole(1))
    evaluate_every: int = setting(50, Whole(0))
    evaluate_batches: int = setting(4, Whole(1))
    sample_every: int = setting(100, Whole(0))
    sample_prompt: str = setting("The ", Text(empty=False))
    sample_tokens: int = setting(64, Whole(1, 100_000))
    sample_temperature: float = setting(0.8, Number(0))


@dataclass(frozen=True)
class TrainConfig:
    """All of a run's settings. `from_dict` checks; `to_dict` and `to_toml` give back what `from_dict` takes."""
    model: ModelSettings = field(default_factory=ModelSettings)
    data: DataSettings = field(default_factory=DataSettings)
    train: StepSettings = field(default_factory=StepSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    cut: CutSettings = field(default_factory=CutSettings)
    run: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self):
        if self.model.from_ is None and self.data.tokenizer == "model":
            raise ConfigError("[data] tokenizer = 'model' is that of [model] from; without it take bytes or bpe")
        if self.model.from_ is not None and self.data.tokenizer == "bpe":
            raise ConfigError("[data] tokenizer = 'bpe' learns new tokens, and [model] from knows its own: leave "
                              "tokenizer and vocab out, and the model's is taken")
        if self.warmup > self.train.steps:
            raise ConfigError(f"[optimizer] warmup {self.warmup} is longer than the run of {self.train.steps} steps: "
                              "it may be as long, or left out (a tenth of it)")
        if self.model.from_ is None:
            config = self.model.config(self.data.vocab or BYTES, self.train.tokens)
            self.check_model(config)

    def check_model(self, config: ModelConfig) -> None:
        """Refuse what this model can't do with these settings."""
        if self.train.tokens > config.positions:
            raise ConfigError(f"[train] tokens {self.train.tokens} are more than the {config.positions} positions of "
                              f"the model: take fewer, or raise [model] positions")
        if self.run.save_every:
            from minitp.checkpoint.hf_config import config_to_hf
            try:
                config_to_hf(config)
            except ConfigError as error:
                raise ConfigError(f"this model can be trained, and not be saved: {error}; [run] save_every = 0 trains "
                                  "without checkpoints") from None

    @property
    def warmup(self) -> int:
        """Steps until the rate is at its highest."""
        return self.train.steps // 10 if self.optimizer.warmup is None else self.optimizer.warmup

    @property
    def tokenizer(self) -> str:
        """`bytes`, `bpe` or `model`: what was asked for, or what the model brings."""
        return self.data.tokenizer or ("bytes" if self.model.from_ is None else "model")

    @property
    def name(self) -> str:
        """What to call the model."""
        if self.model.from_ is not None:
            return Path(self.model.from_).name
        return self.model.family or "tiny"

    def deciding(self) -> dict[str, Any]:
        """The settings that decide a run's losses, whatever its ranks, by key: for the header of its trace."""
        return {**asdict(self.train), **asdict(self.optimizer), "from": self.model.from_,
                "tokenizer": self.tokenizer, "validation": self.data.validation}

    @property
    def folder(self) -> Path:
        """Where the run lies."""
        return Path(self.run.folder or f"runs/{self.name}").expanduser()

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """From sections of plain values, as TOML gives them."""
        sections: dict[str, Any] = {f.name: f.default_factory for f in fields(cls)}
        unknown = [key for key in values if key not in sections]
        if unknown:
            raise ConfigError(f"there is no section [{plain(unknown[0], 40)}] in a training run's settings; there are "
                              + ", ".join(f"[{name}]" for name in sections))
        made: dict[str, Any] = {}
        for name, section in sections.items():
            given = values.get(name, {})
            if not isinstance(given, Mapping):
                raise ConfigError(f"[{name}] must be a section of settings, not {plain(repr(given), 60)}")
            made[name] = checked(section, name, given)
        return cls(**made)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Sections of plain values; what was left out and has no default stays out."""
        return {name: {key.rstrip("_"): value for key, value in section.items() if value is not None}
                for name, section in asdict(self).items()}

    def to_toml(self) -> str:
        """As a file that `--config` takes."""
        return "\n".join(f"[{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in section.items())
                         for name, section in self.to_dict().items() if section)


def _toml(value: Any) -> str:
    """A setting as TOML writes it: of JSON's words only a float without a point or an exponent differs from TOML's."""
    import json
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def read_toml(file: str | Path) -> dict[str, Any]:
    """The sections of a file of settings, not checked yet."""
    path = Path(file).expanduser()
    try:
        with open(path, "rb") as stream:
            data = stream.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"--config {file}: {error.strerror or error}") from None
    if len(data) > LARGEST:
        raise ConfigError(f"--config {file} has more than {LARGEST >> 10} KiB: it isn't a file of settings")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:              # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise ConfigError(f"--config {file} isn't TOML: {plain(error, 200)}") from None


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Sections over sections: what a later one sets holds. What is no section stays as it is, to be refused."""
    whole: dict[str, Any] = {}
    for layer in layers:
        for name, section in layer.items():
            both = isinstance(section, Mapping) and isinstance(whole.get(name, {}), Mapping)
            whole[name] = {**whole.get(name, {}), **section} if both else whole.get(name, section)
    return whole
