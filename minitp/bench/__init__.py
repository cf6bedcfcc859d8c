"""`minitp bench`: how fast, and how far from what this machine can do at best, both measured in the same run.

    decode, prefill    tokens per second, against the same matrix products with nothing around them     (steps.py)
    load               seconds to the first token, bytes read per second, memory of each rank           (loading.py)
    training           tokens per second of a step, and what of each rank's memory is explained          (training.py)
    collective         µs per collective, against MPI without minitp around it; the cost of recording   (messages.py)

Each is a function that every rank of a job calls; it returns rows of plain data, the same on all ranks. Rounds of the
work and of its limit alternate, and medians of at least five are compared: on a shared machine both see the same noise.
"""
from minitp.bench.loading import load
from minitp.bench.messages import collective, recording
from minitp.bench.steps import decode, prefill
from minitp.bench.training import training

__all__ = ["collective", "decode", "load", "prefill", "recording", "training"]
