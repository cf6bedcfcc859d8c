"""The models whose sizes this machine knows: the catalog's, and what else lies in the models folder.

A model is asked for by its name in this list, never by a path: what the list doesn't have isn't opened.
"""
from dataclasses import replace
from pathlib import Path

from minitp.checkpoint.files import read_json
from minitp.checkpoint.gguf import read_manifest
from minitp.checkpoint.gguf_config import config_from_gguf
from minitp.checkpoint.hf_config import config_from_hf
from minitp.config import ModelConfig
from minitp.errors import ConfigError
from minitp.models import cache_folder, list_models

MOST, MOST_LAYERS = 100, 1000                # files and folders in the list; layers of a model whose table is asked for


def known_models() -> dict[str, Path]:
    """Name → where its config is read from. Bundled and fetched models by their catalog names, the rest by file."""
    known = {row.name: row.path for row in list_models() if row.path is not None}
    folder = cache_folder()
    try:
        found = sorted(folder.iterdir())[:MOST]
    except OSError:
        return known
    listed = set(known.values())
    inside = [path for path in found if path not in listed and path.resolve().parent == folder.resolve()]
    return known | {path.name: path for path in inside if path.suffix == ".gguf" or _has_config(path)}


def known_config(name: str) -> ModelConfig:
    """The sizes of one of them. ConfigError for a name that isn't known or a model whose mathematics minitp hasn't;
    FileFormatError where its file breaks a rule."""
    known = known_models()
    if name not in known:
        raise ConfigError(f"no model {name!r:.60} here; there are {', '.join(known)}. More can be fetched "
                          "(`minitp models`), or laid in the models folder")
    path = known[name]
    if path.is_dir():
        config = config_from_hf(read_json(path / "config.json", cap=1_000_000), name=name)
    else:
        config = config_from_gguf(read_manifest(path))
    if config.layers > MOST_LAYERS:
        raise ConfigError(f"{name} says it has {config.layers:,} layers; tables are made up to {MOST_LAYERS:,}")
    return replace(config, name=name)


def _has_config(folder: Path) -> bool:
    """A folder with a config.json of its own: a link may lead anywhere."""
    file = folder / "config.json"
    return file.is_file() and file.resolve().parent == folder.resolve()
