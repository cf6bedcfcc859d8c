"""The third level of placement: where a logical parameter lies in a file.

`minitp.placement` says what the parameters are ("layers.0.attention.q.weight") and which slice a rank holds; a
`NameMap` says, per format, in which tensor a parameter lies and how:

  transposed    GPT-2's Conv1D keeps (in, out); minitp and everyone else (out, in)
  interleaved   a head's rows as rotary pairs (0, E/2, 1, E/2+1, …), llama.cpp's order for Llama's q and k; minitp keeps
                the two halves of a head apart
  part, order   q, k, v (or gate, up) in one tensor, in one of three orders that can't be told apart by their shapes, so
                the order is declared, never guessed (n query heads per kv head):
                  blocks   all of q, then all of k, then all of v
                  heads    q k v of head 0, q k v of head 1, …              (n = 1 only)
                  groups   n heads of q, one of k, one of v; the next n, …   (heads, where n > 1)

A slice of the parameter then is one or a few slices of the tensor.
"""
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from minitp.checkpoint.files import shape_of
from minitp.config import ModelConfig
from minitp.cut import Slices
from minitp.errors import ConfigError
from minitp.placement import Parameter

ORDERS = ("blocks", "heads", "groups")
PARTS = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}


@dataclass(frozen=True)
class Stored:
    """How a format stores one kind of parameter: `tensor` is its name without .weight, {} standing for the layer."""
    tensor: str
    transposed: bool = False
    interleaved: bool = False
    part: str = ""
    order: str = "blocks"


@dataclass(frozen=True)
class Location:
    """One parameter's place in a tensor: its row r is the tensor's row r//unit · stride + offset + r%unit.

    `shape` is the tensor's, as the config implies it. `pair_rows` is the head size where rotary pairs are interleaved,
    else 0.
    """
    tensor: str
    shape: tuple[int, ...]
    unit: int
    stride: int
    offset: int
    transposed: bool
    pair_rows: int

    def runs(self, rows: slice) -> Iterator[tuple[slice, slice]]:
        """The parameter's `rows` as (its rows, the tensor's rows), run by run; interleaved rows by whole heads."""
        step = self.pair_rows or self.unit
        for first in range(rows.start - rows.start % step, rows.stop, step):
            at = first // self.unit * self.stride + self.offset + first % self.unit
            if self.pair_rows:
                yield slice(first, first + step), slice(at, at + step)
            else:
                start, stop = max(first, rows.start), min(first + step, rows.stop)
                yield slice(start, stop), slice(at + start - first, at + stop - first)

    def read(self, read_into: Callable[[Slices, np.ndarray], None], slices: Slices, out: np.ndarray) -> None:
        """Fill `out` with the parameter's `slices`; `read_into(slices, out)` does so for the tensor's."""
        rows, *columns = slices
        for mine, stored in self.runs(rows):
            if self.pair_rows:
                head = np.empty((self.pair_rows, *shape_of(tuple(columns))), out.dtype)
                read_into((stored, *columns), head)
                start, stop = max(mine.start, rows.start), min(mine.stop, rows.stop)
                halves = np.concatenate((head[0::2], head[1::2]))
                out[start - rows.start:stop - rows.start] = halves[start - mine.start:stop - mine.start]
            else:
                part = out[mine.start - rows.start:mine.stop - rows.start]
                if self.transposed:
                    read_into((*columns, stored), part.T)
                else:
                    read_into((stored, *columns), part)

    def place(self, parameter: np.ndarray, tensor: np.ndarray) -> None:
        """The other way: write a whole parameter into its rows of the whole tensor."""
        stored_rows = tensor.T if self.transposed else tensor
        for mine, stored in self.runs(slice(0, len(parameter))):
            if self.pair_rows:
                stored_rows[stored][0::2], stored_rows[stored][1::2] = np.split(parameter[mine], 2)
            else:
                stored_rows[stored] = parameter[mine]


@dataclass(frozen=True)
class NameMap:
    """Where a format keeps each kind of parameter.

    prefix    what the format puts before every name but the head's; files from a bare model lack it, and are read too
    ignored   tensors that may be there and hold no parameter (tables computed from the config)
    fields    axis -> the config field that sets its size, for messages
    """
    name: str
    stored: dict[str, Stored]
    fields: dict[str, str]
    prefix: str = ""
    ignored: str = "(?!)"
    _layer: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        for kind, stored in self.stored.items():
            if stored.order not in ORDERS:
                raise ConfigError(f"{kind}: the order {stored.order!r} of fused rows is not known; minitp reads "
                                  "blocks (q|k|v), heads (q1 k1 v1 q2 …) and groups (q… k v per kv head)")
        stem = self.stored["layers.{}.attention_norm"].tensor.split("{}")[0]
        object.__setattr__(self, "_layer", re.compile(rf"{re.escape(stem)}(\d{{1,9}})\."))

    def fused(self, what: Literal["qkv", "gate_up"], tensor: str, order: str, transposed: bool = False) -> "NameMap":
        """This map for files that keep q, k, v (or gate, up) together in `tensor`, in the declared `order`."""
        return replace(self, stored=self.stored | fused(what, tensor, order, transposed))

    def canonical(self, tensor: str) -> str | None:
        """A file's name for a tensor without the prefix; None for one that is ignored."""
        bare = tensor.removeprefix(self.prefix)
        return None if re.fullmatch(self.ignored, bare) else bare

    def full_name(self, canonical: str) -> str:
        """The name with the prefix, as the format's own library writes it; the head has none."""
        return canonical if canonical.startswith(self.stored["head"].tensor + ".") else self.prefix + canonical

    def layers_in(self, tensors: list[str]) -> int:
        """How many layers the (canonical) tensors belong to."""
        return len({m[1] for name in tensors if (m := self._layer.match(name))})

    def locate(self, parameter: Parameter, config: ModelConfig) -> Location:
        """Where `parameter` lies. ConfigError if the format has no such parameter or can't hold this config."""
        kind, end = parameter.name.rsplit(".", 1)
        layer = re.match(r"layers\.(\d+)\.", kind)
        kind = re.sub(r"^layers\.\d+", "layers.{}", kind)
        if kind not in self.stored:
            raise ConfigError(f"the format {self.name} has no place for the parameter {parameter.name!r}")
        stored = self.stored[kind]
        unit, stride, offset, rows = _rows(stored, parameter, config)
        shape = (rows, *parameter.shape[1:])
        transposed = stored.transposed and len(shape) == 2
        return Location(stored.tensor.format(layer[1] if layer else "") + "." + end,
                        shape[::-1] if transposed else shape, unit, stride, offset, transposed,
                        config.head_size if stored.interleaved else 0)


def _rows(stored: Stored, parameter: Parameter, config: ModelConfig) -> tuple[int, int, int, int]:
    """unit, stride, offset of `Location`, and how many rows the tensor has."""
    n, e, k = config.heads_per_kv, config.head_size, config.kv_heads
    if not stored.part:
        return parameter.shape[0], 0, 0, parameter.shape[0]
    if stored.part in PARTS["gate_up"]:
        sizes, repeats = {"gate": config.ffn, "up": config.ffn}, 1
    else:
        sizes, repeats = {"q": n * e, "k": e, "v": e}, k
    if stored.order == "heads" and n != 1:
        raise ConfigError(f"{stored.tensor}: the order q1 k1 v1 q2 … needs a kv head per query head, "
                          f"not {config.heads} query and {k} kv heads; the order `groups` has them")
    if stored.order == "blocks":
        sizes, repeats = {part: size * repeats for part, size in sizes.items()}, 1
    before = list(sizes)[:list(sizes).index(stored.part)]
    stride = sum(sizes.values())
    return sizes[stored.part], stride, sum(sizes[part] for part in before), stride * repeats


def fused(what: Literal["qkv", "gate_up"], tensor: str, order: str, transposed: bool = False) -> dict[str, Stored]:
    """The entries of a name map for a fused tensor."""
    if what == "gate_up" and order != "blocks":
        raise ConfigError(f"{tensor}: gate and up are read in the order blocks (gate|up), not {order!r}")
    block = "attention" if what == "qkv" else "mlp"
    return {f"layers.{{}}.{block}.{part}": Stored(tensor, transposed, part=part, order=order) for part in PARTS[what]}


# --- the formats ------------------------------------------------------------------------------------------------------

HF_LLAMA = NameMap(
    name="Hugging Face Llama", prefix="model.", ignored=r".*rotary_emb\.inv_freq",
    fields={"vocab": "vocab_size", "hidden": "hidden_size", "head": "num_attention_heads",
            "kv_head": "num_key_value_heads", "ffn": "intermediate_size", "layers": "num_hidden_layers"},
    stored={
        "embedding": Stored("embed_tokens"),
        "layers.{}.attention_norm": Stored("layers.{}.input_layernorm"),
        "layers.{}.attention.q": Stored("layers.{}.self_attn.q_proj"),
        "layers.{}.attention.k": Stored("layers.{}.self_attn.k_proj"),
        "layers.{}.attention.v": Stored("layers.{}.self_attn.v_proj"),
        "layers.{}.attention.o": Stored("layers.{}.self_attn.o_proj"),
        "layers.{}.mlp_norm": Stored("layers.{}.post_attention_layernorm"),
        "layers.{}.mlp.gate": Stored("layers.{}.mlp.gate_proj"),
        "layers.{}.mlp.up": Stored("layers.{}.mlp.up_proj"),
        "layers.{}.mlp.down": Stored("layers.{}.mlp.down_proj"),
        "norm": Stored("norm"),
        "head": Stored("lm_head"),
    })

HF_GPT2 = NameMap(
    name="Hugging Face GPT-2", prefix="transformer.", ignored=r"h\.\d+\.attn\.(bias|masked_bias)",
    fields={"vocab": "vocab_size", "hidden": "n_embd", "head": "n_head", "kv_head": "n_head", "ffn": "n_inner",
            "position": "n_positions", "layers": "n_layer"},
    stored={
        "embedding": Stored("wte"),
        "positions": Stored("wpe"),
        "layers.{}.attention_norm": Stored("h.{}.ln_1"),
        **fused("qkv", "h.{}.attn.c_attn", "blocks", transposed=True),
        "layers.{}.attention.o": Stored("h.{}.attn.c_proj", transposed=True),
        "layers.{}.mlp_norm": Stored("h.{}.ln_2"),
        "layers.{}.mlp.up": Stored("h.{}.mlp.c_fc", transposed=True),
        "layers.{}.mlp.down": Stored("h.{}.mlp.c_proj", transposed=True),
        "norm": Stored("ln_f"),
        "head": Stored("lm_head"),
    })

GGUF_QWEN2 = NameMap(
    name="GGUF qwen2", ignored=r"rope_freqs\.weight",
    fields={"vocab": "qwen2.vocab_size", "hidden": "qwen2.embedding_length", "head": "qwen2.attention.head_count",
            "kv_head": "qwen2.attention.head_count_kv", "ffn": "qwen2.feed_forward_length",
            "layers": "qwen2.block_count"},
    stored={
        "embedding": Stored("token_embd"),
        "layers.{}.attention_norm": Stored("blk.{}.attn_norm"),
        "layers.{}.attention.q": Stored("blk.{}.attn_q"),
        "layers.{}.attention.k": Stored("blk.{}.attn_k"),
        "layers.{}.attention.v": Stored("blk.{}.attn_v"),
        "layers.{}.attention.o": Stored("blk.{}.attn_output"),
        "layers.{}.mlp_norm": Stored("blk.{}.ffn_norm"),
        "layers.{}.mlp.gate": Stored("blk.{}.ffn_gate"),
        "layers.{}.mlp.up": Stored("blk.{}.ffn_up"),
        "layers.{}.mlp.down": Stored("blk.{}.ffn_down"),
        "norm": Stored("output_norm"),
        "head": Stored("output"),
    })

GGUF_LLAMA = replace(
    GGUF_QWEN2, name="GGUF llama",
    fields={axis: key.replace("qwen2", "llama") for axis, key in GGUF_QWEN2.fields.items()},
    stored=GGUF_QWEN2.stored | {"layers.{}.attention.q": Stored("blk.{}.attn_q", interleaved=True),
                                "layers.{}.attention.k": Stored("blk.{}.attn_k", interleaved=True)})

GGUF_GPT2 = replace(
    GGUF_QWEN2, name="GGUF gpt2",
    fields={axis: key.replace("qwen2", "gpt2") for axis, key in GGUF_QWEN2.fields.items()}
    | {"position": "gpt2.context_length"},
    stored=GGUF_QWEN2.stored | {"positions": Stored("position_embd"), **fused("qkv", "blk.{}.attn_qkv", "blocks")})
