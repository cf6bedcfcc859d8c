"""The inputs of the page as the values that a question is asked with."""
from collections.abc import Iterable
from typing import Any

from minitp.plan.questions.base import WhatIf
from minitp.plan.units import parse_bytes
from minitp.view.plan import Asked


def what_if(asked: Asked, names: Iterable[str]) -> WhatIf:
    """The named inputs; one that is left as it is has nothing to say."""
    training = asked.task == "train"
    inputs: dict[str, Any] = {
        "model": asked.model, "machine": asked.machine, "devices": asked.devices or None,
        "memory": parse_bytes(asked.memory) if asked.memory else None, "link": asked.link or None,
        "between": asked.between or None, "tokens": float(asked.tokens) or None,
        "seq": asked.length() if training else asked.prompt, "batch": asked.step if training else asked.batch,
        "weights": asked.weights}
    return WhatIf(**{name: inputs.get(name) for name in names})
