"""What one forward pass needs besides x and the weights, planned on the host once per pass.

B batch  T tokens  S slots of the cache  E head size
"""
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from minitp.arrays import NUMPY, Arrays
from minitp.config import ModelConfig, RotaryConfig
from minitp.dropout import Dropout
from minitp.errors import ConfigError
from minitp.saved import Saved

Recompute = Literal["none", "selective", "full"]


@runtime_checkable
class Observer(Protocol):
    """Who wants to see a layer's inner arrays: the recorder's values."""

    def save(self, site: str, arrays: Mapping[str, Any], ctx: "Context") -> None: ...


class KVCache:
    """Keys and values of every layer's attention on this rank, (B, K_p, S, E) each. Slot = position.

    It starts as zeros: slots not yet written are hidden by the mask, but 0 × garbage may be NaN.
    """

    def __init__(self, batch: int, slots: int, dtype: Any, arrays: Arrays = NUMPY):
        self.batch, self.slots, self.dtype, self.arrays = batch, slots, np.dtype(dtype), arrays
        self._held: dict[str, tuple[Any, Any]] = {}

    def extend(self, site: str, keys: Any, values: Any, ctx: "Context") -> tuple[Any, Any]:
        """Write (B, T, K_p, E) keys and values into their slots; return those of every slot up to the last position."""
        if site not in self._held:
            kv_heads, head_size = keys.shape[2:]
            shape = (self.batch, kv_heads, self.slots, head_size)
            self._held[site] = self.arrays.xp.zeros(shape, self.dtype), self.arrays.xp.zeros(shape, self.dtype)
        for held, new in zip(self._held[site], (keys, values), strict=True):
            held[ctx.row_index, :, ctx.position_index] = new
        held_keys, held_values = self._held[site]
        return held_keys[:, :, :ctx.seen], held_values[:, :, :ctx.seen]

    @property
    def nbytes(self) -> int:
        """What this rank holds, over all layers that have run."""
        return sum(array.nbytes for pair in self._held.values() for array in pair)


@dataclass
class Context:
    """One pass: where the tokens stand, what they may see, and where the layers leave what others need.

    `plan_pass` makes one for a model; `Context()` is enough for linear layers and norms on their own.

    positions  (B, T) on the host; a query at position t sees the slots 0…t, so padding lies in slots not yet visible
    last       (B,) the row of each sequence whose logits are wanted; None: of every row
    rotary     cos and sin of the angles, (B, 1, T, E/2); None with learned positions
    mask       (B, 1, T, S), True where a query may look; None where all may look everywhere (a decode step)
    saved      what the backward pass will need; None in a pass that has none
    recompute  what is computed again in the backward pass instead of saved: `selective`, the attention's scores;
               `full`, all of a block but its input (Korthikanti et al. 2022, section 5; Chen et al. 2016)
    dropout    None: nothing is dropped
    """
    positions: Int[np.ndarray, "B T"] | None = None
    seen: int = 0
    dtype: Any = np.float32
    arrays: Arrays = NUMPY
    last: Int[np.ndarray, " B"] | None = None
    rotary: tuple[Any, Any] | None = None
    mask: Any = None
    cache: KVCache | None = None
    observer: Observer | None = None
    saved: Saved | None = None
    recompute: Recompute = "none"
    dropout: Dropout | None = None
    row_index: Any = field(default=None, repr=False)             # (B, 1): 0…B-1, there too
    position_index: Any = field(default=None, repr=False)        # `positions`, where the weights are

    @property
    def xp(self) -> Any:
        return self.arrays.xp

    def save(self, site: str, **arrays: Any) -> None:
        """Keep what a layer's backward will need, and show it to whoever observes this pass."""
        if self.saved is not None:
            self.saved.keep(site, arrays)
        if self.observer is not None:
            self.observer.save(site, arrays, self)

    def show(self, site: str, **arrays: Any) -> None:
        """Show a layer's inner arrays to whoever observes this pass; no backward needs them."""
        if self.observer is not None:
            self.observer.save(site, arrays, self)

    @property
    def kept(self) -> Saved:
        """What this pass's forward saved, for its backward."""
        if self.saved is None:
            raise ConfigError("there is no backward of a pass whose forward saved nothing: plan it with saved=Saved()")
        return self.saved

    def drop_out(self, site: str, x: Any) -> Any:
        """`x` (B, …) times its dropout mask, in training; forward and backward alike."""
        return x if self.dropout is None else x * self.dropout.mask(site, x.shape[1:], x.dtype)


def plan_pass(config: ModelConfig, positions: Int[np.ndarray, "B T"], *, dtype: Any = np.float32,
              arrays: Arrays = NUMPY, last: Int[np.ndarray, " B"] | None = None, cache: KVCache | None = None,
              observer: Observer | None = None, saved: Saved | None = None, recompute: Recompute = "none",
              dropout: Dropout | None = None) -> Context:
    """All that depends on positions alone: mask, angles, slots. Without a cache the slots are this pass's tokens."""
    tokens = np.arange(positions.shape[1])
    seen, slots = (int(positions.max()) + 1, positions) if cache is not None else (len(tokens), tokens[None])
    visible = np.arange(seen)[None, None, None, :] <= slots[:, None, :, None]                # B 1 T S
    mask, rotary = None if visible.all() else arrays.from_host(visible), None
    if config.rotary is not None:
        angles = positions[:, None, :, None] * frequencies(config.rotary, config.head_size)  # B 1 T E/2, float64
        rotary = tuple(arrays.from_host(table.astype(dtype)) for table in (np.cos(angles), np.sin(angles)))
    if saved is not None:
        saved.keep("pass", {"rotary": rotary, "mask": mask})         # in memory until the last layer's backward has run
    return Context(positions, seen, dtype, arrays, last, rotary, mask, cache, observer, saved, recompute, dropout,
                   arrays.from_host(np.arange(len(positions))[:, None]), arrays.from_host(positions))


def frequencies(rotary: RotaryConfig, head_size: int) -> np.ndarray:
    """The E/2 angles per position, in float64 from whole numbers: 16-bit positions go wrong past 256.

    Su et al. 2021, section 3.2.2; `linear`: Chen et al. 2023; `llama3`: Llama 3.1's ramp between long and short waves.
    """
    plain = rotary.theta ** (-np.arange(0, head_size, 2) / head_size)
    if rotary.scaling == "default":
        return plain
    if rotary.scaling == "linear":
        return plain / rotary.factor
    turns = rotary.original_positions * plain / (2 * np.pi)           # of each wave within the trained context
    kept = (turns - rotary.low_freq_factor) / (rotary.high_freq_factor - rotary.low_freq_factor)
    kept = np.clip(kept, 0, 1)                                        # 0: stretched by the factor, 1: as it was
    return kept * plain + (1 - kept) * plain / rotary.factor
