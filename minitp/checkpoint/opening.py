"""`open_checkpoint`: what lies at a path, and the checks that belong to each kind.

    a folder with config.json        Hugging Face's layout: model.safetensors, or shards and their index
    a folder with placement.json     minitp's own: one file per rank (minitp.checkpoint.reshard)
    a .gguf file                     llama.cpp's: everything in one file, usually quantized
"""
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from minitp.checkpoint import gguf, safetensors
from minitp.checkpoint.checkpoint import Checkpoint, FileCheckpoint, TokenizerSource
from minitp.checkpoint.files import TensorFile, likely_cause, opened, read_json, some
from minitp.checkpoint.gguf_config import NAME_MAPS, config_from_gguf
from minitp.checkpoint.hf_config import config_from_hf
from minitp.checkpoint.names import HF_GPT2, HF_LLAMA, NameMap
from minitp.errors import FileFormatError

INDEX = "model.safetensors.index.json"


def open_checkpoint(path: str | Path, names: NameMap | None = None, cache: bool | str | Path = False,
                    progress: Callable[[int, int], None] | None = None) -> Checkpoint:
    """The checkpoint at `path`, its headers read and checked.

    `cache` keeps a float32 copy of a GGUF file, in the user's cache folder (True) or a folder of yours, and reads that
    from then on (minitp.checkpoint.cache); `progress(done_bytes, total_bytes)` is called while it is made.
    `names` declares where a Hugging Face folder keeps its parameters, where that isn't the family's usual way (fused
    tensors: `HF_LLAMA.fused("qkv", "layers.{}.self_attn.qkv_proj", "groups")`).
    FileFormatError: the files break a rule. ConfigError: minitp doesn't have the model's mathematics.
    """
    path = Path(path)
    if path.is_dir():
        if (path / "placement.json").exists():
            from minitp.checkpoint.reshard import RankCheckpoint
            return RankCheckpoint(path)
        return open_hf_folder(path, names)
    gguf.refuse_part(path)
    if not path.exists():
        raise FileFormatError(f"{path}: there is no such file or folder")
    with opened(path) as (file, _):
        head = file.read(64)
    if head[:4] == b"GGUF" or path.suffix == ".gguf":
        if not cache:
            return GGUFCheckpoint(path)
        from minitp.checkpoint.cache import cached
        return cached(path, None if cache is True else Path(cache), progress)
    raise FileFormatError(f"{path}: a checkpoint is a .gguf file, or a folder with config.json and model.safetensors"
                          f"{likely_cause(head)}")


class GGUFCheckpoint(FileCheckpoint):
    """One GGUF file."""

    def __init__(self, path: Path):
        manifest = gguf.read_manifest(path)
        config = config_from_gguf(manifest)                       # first: an unknown architecture is no damaged file
        if unsupported := manifest.unsupported():
            counts = ", ".join(f"{count} of {dtype}" for dtype, count in unsupported.items())
            raise FileFormatError(f"{path}: tensors of types that can't be dequantized: {counts}")
        self.manifest = manifest
        super().__init__(path, config, NAME_MAPS[manifest.metadata["general.architecture"]], [manifest], manifest.notes)

    @property
    def tokenizer_source(self) -> TokenizerSource | None:
        return TokenizerSource(self.path, self.manifest.metadata)


def open_hf_folder(folder: Path, names: NameMap | None = None) -> FileCheckpoint:
    """A folder as Hugging Face's library saves it."""
    if not (folder / "config.json").exists():
        raise FileFormatError(f"{folder}: neither config.json nor placement.json is here, as in a checkpoint's folder")
    values = read_json(folder / "config.json")
    config = config_from_hf(values, name=folder.name)
    if (folder / "generation_config.json").exists():              # chat models name further end tokens only here
        values |= {"eos_token_id": _end_tokens(read_json(folder / "generation_config.json"), config.end_tokens)}
        config = replace(config, end_tokens=config_from_hf(values).end_tokens)
    usual = HF_GPT2 if config.learned_positions else HF_LLAMA
    return FileCheckpoint(folder, config, names or usual, _safetensors_files(folder))


def _end_tokens(generation: dict[str, Any], known: tuple[int, ...]) -> list[Any]:
    more = generation.get("eos_token_id")
    return list(dict.fromkeys([*known, *(more if isinstance(more, list) else [more])]))


def _safetensors_files(folder: Path) -> list[TensorFile]:
    single, index = folder / "model.safetensors", folder / INDEX
    if single.exists() and index.exists():
        raise FileFormatError(f"{folder}: both {single.name} and {INDEX} are here; remove the one that is out of date")
    if single.exists():
        return [safetensors.read_manifest(single)]
    if index.exists():
        return _indexed_files(index)
    others = [p.name for p in folder.iterdir() if p.suffix in (".safetensors", ".bin", ".pt", ".pth")]
    there = f" (there is {some(others)}; pickles, .bin and .pt, are never read)" if others else ""
    raise FileFormatError(f"{folder}: neither model.safetensors nor {INDEX} is here{there}")


def _indexed_files(index: Path) -> list[TensorFile]:
    """The shards that an index names. Their headers are the truth; an index that says otherwise is an error."""
    where = read_json(index).get("weight_map")
    if not isinstance(where, dict) or not where or not all(isinstance(name, str) for name in where.values()):
        raise FileFormatError(f"{index}: weight_map must map tensor names to file names")
    shards = sorted(set(where.values()))
    for name in shards:
        if not name or "/" in name or "\\" in name or name in (".", "..") or Path(name).name != name or "\0" in name:
            raise FileFormatError(f"{index}: {name!r:.80} is not the plain name of a file in the same folder")
        if not index.with_name(name).is_file():
            raise FileFormatError(f"{index}: the shard {name} is missing")
    files: list[TensorFile] = [safetensors.read_manifest(index.with_name(name)) for name in shards]
    held = {(tensor, file.path.name) for file in files for tensor in file.tensors}
    said = set(where.items())
    if held != said:
        unlisted, absent = (some(f"{t} in {f}" for t, f in pairs) for pairs in (held - said, said - held))
        parts = [f"not in the index: {unlisted}"] * bool(unlisted) + [f"not in its shard: {absent}"] * bool(absent)
        raise FileFormatError(f"{index}: the index and the shards disagree; {'; '.join(parts)}")
    return files
