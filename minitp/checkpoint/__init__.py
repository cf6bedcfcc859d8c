"""Checkpoints: model files in, slices of parameters out; and per-rank files, written and cut anew.

    open_checkpoint   a Hugging Face folder, a GGUF file, or a folder of per-rank files (opening.py)
    Checkpoint.read   any slice of any logical parameter (checkpoint.py)

Below them: safetensors.py and gguf.py parse files that are not trusted, hf_config.py and gguf_config.py say which model
it is, names.py where each parameter lies.
"""
from minitp.checkpoint.checkpoint import Checkpoint, TokenizerSource
from minitp.checkpoint.opening import open_checkpoint

__all__ = ["Checkpoint", "TokenizerSource", "open_checkpoint"]
