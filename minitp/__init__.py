"""minitp: a transformer whose big matrices are visibly cut across ranks.

Nothing heavy is imported here: `minitp --help` must answer at once, and the number of BLAS threads has to be settled
before NumPy is first imported. The names below are imported when they are first used.
"""
from importlib import import_module

__version__ = "0.1.0"

_HOME = {
    "launch": "minitp.launcher",
    "Communicator": "minitp.comm",
    "Partial": "minitp.comm",
    "ModelConfig": "minitp.config",
    "Placement": "minitp.placement",
    "Cut": "minitp.cut",
    "Transformer": "minitp.model",
}
__all__ = ["Communicator", "Cut", "ModelConfig", "Partial", "Placement", "Transformer", "__version__", "launch"]


def __getattr__(name: str):
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'minitp' has no attribute {name!r}")
