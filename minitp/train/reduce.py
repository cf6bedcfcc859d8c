"""What ranks owe each other between backward and the optimizer's step: once per step, whatever the number of layers.

    sum_copies   kv heads that several ranks hold: each rank's gradient is one term of a sum
    global_norm  the length of the gradient of the whole model, each element counted once; with it clipping, and the
                 decision to skip a step whose gradient isn't finite, are the same on every rank
"""
from math import inf, isfinite
from typing import Any

import numpy as np

from minitp.comm import Communicator, Partial
from minitp.cut import Slices
from minitp.errors import ConfigError
from minitp.placement import Parameter, Placement
from minitp.train.optimizer import blocks


def sum_copies(gradients: Any, placement: Placement, group: Communicator) -> None:
    """partial → whole: add up the gradients of the copies of kv heads, in place; sends nothing where there are none.

    One all-reduce over the whole group, all layers in one buffer, zeros where a rank holds nothing: the groups of
    owners overlap (9 heads in 3 kv groups on 5 ranks put kv head 0 on ranks 0 and 1, head 1 on 1 and 2), so groups of
    their own would have to be called in an order that no rank can get wrong.
    """
    owed = [p for p in placement.parameters if p.gradient == "partial"]
    if not owed:
        return
    homes, start, places = placement.homes(group.rank), 0, []
    for parameter in owed:
        places.append((parameter, slice(start, start + parameter.size)))
        start += parameter.size
    buffer = group.arrays.xp.zeros((start,), gradients[homes[owed[0].name][0].name].dtype)
    for parameter, place in places:
        array, rows = homes[parameter.name]
        buffer[place].reshape(parameter.shape)[placement.slices(parameter, group.rank)] = gradients[array.name][rows]
    total = group.all_reduce(Partial(buffer, group), site="gradients.copies",
                             reason="a kv head's copies each saw other query heads: their gradients are terms of a sum")
    for parameter, place in places:
        array, rows = homes[parameter.name]
        gradients[array.name][rows] = total[place].reshape(parameter.shape)[placement.slices(parameter, group.rank)]


def global_norm(gradients: Any, placement: Placement, group: Communicator) -> float:
    """√ of the sum of all squares, in float64: of every element once, whether it is a shard, whole or a copy.

    After `sum_copies`. NaN or ∞ on every rank where the gradient of any rank, counted or not, isn't finite.
    """
    homes, total = placement.homes(group.rank), group.arrays.xp.zeros((1,), np.float64)
    with np.errstate(all="ignore"):                    # a gradient that isn't finite is an answer here, no accident
        for parameter in placement.parameters:
            array, rows = homes[parameter.name]
            held, counted = gradients[array.name][rows], owned(parameter, placement, group.rank)
            total += _squares(held[counted], group)
            if counted != tuple(slice(0, n) for n in held.shape):
                total += 0 * _squares(held, group)     # counted elsewhere; but 0 · NaN and 0 · ∞ are NaN: all see them
    total = group.all_reduce(Partial(total, group), site="gradients.norm",
                             reason="clipping needs the length of the whole model's gradient, a step needs it finite")
    squared = group.arrays.to_host(total) if group.arrays.is_device(total) else total
    return float(squared[0]) ** 0.5


def owned(parameter: Parameter, placement: Placement, rank: int) -> Slices:
    """The part of `rank`'s own piece of a parameter that it counts or writes for all: each element has one owner.

    Of what several ranks hold the first one is the owner: of a whole parameter rank 0, of a copied kv head its first
    holder.
    """
    piece = placement.slices(parameter, rank)
    axis = parameter.cut_axis
    mine = [slice(0, s.stop - s.start) for s in piece]
    if axis is None:
        mine[0] = slice(0, mine[0].stop if rank == 0 else 0)
    else:
        first, held = placement.owners(parameter.axes[axis]).of(rank), piece[axis]
        mine[axis] = slice(first.start - held.start, first.stop - held.start) if len(first) else slice(0, 0)
    return tuple(mine)


def clip(gradients: Any, norm: float, limit: float) -> float:
    """Shorten the gradient to the length `limit` where its global `norm` is above; returns the factor, at most 1.

    The gradients themselves are scaled, in place: the update sees it, not only the log.
    """
    if not limit > 0:
        raise ConfigError(f"the gradient is clipped to a length above 0, not {limit} (inf: not clipped)")
    if not isfinite(norm) or norm <= limit or limit == inf:
        return 1.0
    for _, gradient in gradients.items():
        gradient *= limit / norm
    return limit / norm


def _squares(held: Any, group: Communicator) -> Any:
    """The sum of squares as a device would give it: (1,), float64, so that nothing waits for the device."""
    total = group.arrays.xp.zeros((1,), np.float64)
    for rows in blocks(held):
        block = held[rows].astype(np.float64)
        total += (block * block).sum(None)
    return total
