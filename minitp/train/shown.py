"""What a step shows of its gradients and its update where a recorder keeps values: for pictures, no part of training.

It looks between the phases, so that what it takes shows as nobody's computing.
"""
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from minitp.model import Transformer
from minitp.train.optimizer import AdamW

ONE = "layers.0.mlp.down.weight"
"""The matrix whose moments and change are shown: one stands for all, as the update is the same for each."""


@dataclass
class Shown:
    """Of one step: `gradients` before they are reduced, then `update` after the optimizer's step."""
    model: Transformer
    step: int
    before: Any = None

    def gradients(self, gradients: Any, weights: Mapping[str, Any]) -> None:
        """Every matrix's gradient as this rank has added it up."""
        group = self.model.group
        if not group.recorder.keeps_values:
            return
        homes = self.model.placement.homes(group.rank)
        for name, (array, rows) in homes.items():
            if len(array.parts[0].shape) == 2:
                group.recorder.keep_update(self.step, name, "gradient", gradients[array.name][rows], group.arrays)
        self.before = weights[homes[ONE][0].name].copy()

    def update(self, optimizer: AdamW, weights: Mapping[str, Any]) -> None:
        """The moments of the matrix ONE, and how it has changed."""
        if self.before is None:
            return
        group = self.model.group
        array = self.model.placement.homes(group.rank)[ONE][0].name
        for name, part in (("first moment", optimizer.m[array]), ("second moment", optimizer.v[array]),
                           ("change", weights[array] - self.before)):
            group.recorder.keep_update(self.step, ONE, name, part, group.arrays)
