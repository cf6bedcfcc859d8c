"""The quantities, by topic; importing this registers them all."""
from minitp.plan.verify.quantities import (
    activations,
    catalogue,
    decode,
    estimators,
    kv_cache,
    network,
    parameters,
    scaling,
    star,
    states,
    traffic,
    training,
    utilization,
)

__all__ = ["activations", "catalogue", "decode", "estimators", "kv_cache", "network", "parameters", "scaling", "star",
           "states", "traffic", "training", "utilization"]
