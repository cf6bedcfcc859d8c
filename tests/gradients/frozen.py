"""What an independent autograd made of small models: tests/reference/training.npz, see make_training.py there."""
import json
from functools import cache
from pathlib import Path

import numpy as np

from minitp.config import ModelConfig
from minitp.cut import Slices
from minitp.placement import Parameter

NAMES = ("llama", "llama-tied", "gpt2")


@cache
def frozen() -> dict[str, np.ndarray]:
    return dict(np.load(Path(__file__).parents[1] / "reference" / "training.npz"))


def config_of(name: str) -> ModelConfig:
    return ModelConfig.from_dict(json.loads(str(frozen()[f"{name}/config"])))


def part_of(name: str, kind: str) -> dict[str, np.ndarray]:
    """By parameter: the "weights", the "gradient" or what was "trained"."""
    start = f"{name}/{kind}/"
    return {key.removeprefix(start): value for key, value in frozen().items() if key.startswith(start)}


class Frozen:
    """The frozen weights as a source."""

    def __init__(self, name: str):
        self.config, self.weights = config_of(name), part_of(name, "weights")

    def read(self, parameter: Parameter, slices: Slices, dtype=np.float64) -> np.ndarray:
        return np.array(self.weights[parameter.name][slices], dtype)
