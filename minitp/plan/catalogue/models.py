"""A model by name, config.json, folder, GGUF file or cached name, as the planner sees it."""
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from minitp.config import ModelConfig, RotaryConfig
from minitp.errors import ConfigError, FetchError, FileFormatError
from minitp.models import Bundled, resolve
from minitp.plan.data_file import Entry, flag, named, read, shown, texts, unknown, whole
from minitp.plan.model import PlannedModel
from minitp.plan.units import parse_count
from minitp.trace.wording import plain

FILE = Path(__file__).parent / "models.toml"
MOST_LAYERS = 10_000
MODELS = "a model is a name of the catalogue, a config.json (by its name, ending in .json), its folder, or a .gguf file"
SWITCHES = ("gated", "tied", "qkv_bias", "attention_bias", "mlp_bias", "parallel_block")


@cache
def _shipped() -> dict[str, PlannedModel]:
    """The catalogue's models by their names and aliases."""
    rows = read(FILE, "family", "model")
    families = dict(named(rows["family"]))
    found: dict[str, PlannedModel] = {}
    for name, entry in named(rows["model"]):
        model = model_of(name, entry.over(families.get(entry.text("family", ""))))
        for called in (name, *entry.take("aliases", texts, ())):
            if called in found:
                raise entry.error(f"{called!r} is the name of another model too")
            found[called] = model
    return found


def model_of(name: str, entry: Entry) -> PlannedModel:
    """A row of the data file as a model. ConfigError for a row that breaks a rule."""
    hidden, heads = entry.take("hidden", whole()), entry.take("heads", whole())
    switches: dict[str, Any] = {switch: entry.take(switch, flag) for switch in SWITCHES}
    rotary = RotaryConfig() if entry.take("rotary", flag) else None
    config = ModelConfig(
        name=name, hidden=hidden, layers=entry.take("layers", whole()), heads=heads,
        kv_heads=entry.take("kv_heads", whole(), heads), head_size=entry.take("head_size", whole(), hidden // heads),
        ffn=entry.take("ffn", whole(), 4 * hidden), vocab=entry.take("vocab", whole()),
        positions=entry.take("positions", whole()), norm=entry.take("norm", _text), norm_eps=1e-5,
        activation=entry.take("activation", _text), rotary=rotary, **switches)
    entry.take("aliases", texts, ())
    entry.text("family", "")
    planned = PlannedModel(
        config, entry.take("experts", whole(), 1), entry.take("active", whole(), 1), entry.take("alibi", flag, False),
        entry.take("embedding_norm", flag, False), entry.source(), entry.take("second_norm", flag, False),
        entry.take("published", parse_count, 0), entry.take("model_parallel", whole(), 0), entry.text("note", ""),
        entry.take("tokens", parse_count, 0))
    entry.done()
    return planned


def models() -> dict[str, PlannedModel]:
    """The catalogue's models by their names (without aliases)."""
    return {model.name: model for model in _shipped().values()}


def model(name_or_path: str | Path) -> PlannedModel:
    """The model of a catalogue name (capitals don't matter), a config.json, a folder with one, a GGUF file, or a Hub id
    that is cached on this machine. ConfigError with near names where there is none, and for a model that has what
    the planner doesn't model."""
    text = str(name_or_path).strip()
    key = "-".join(text.lower().replace("_", "-").split())
    if not isinstance(name_or_path, Path) and key in _shipped():
        return _shipped()[key]
    path = Path(text).expanduser()
    try:
        if path.suffix.lower() == ".json":
            return _config_file(path, path.absolute().parent.name or path.stem)
        if (path / "config.json").exists():
            return _config_file(path / "config.json", path.resolve().name)
        return _resolved(text, path)
    except OSError as error:                            # a name that is too long, a folder that may not be read
        raise ConfigError(f"{shown(path)} can't be read: {error.strerror or error}") from None


def _config_file(path: Path, name: str) -> PlannedModel:
    from minitp.checkpoint.files import read_json
    from minitp.plan.catalogue.hf import planned_from_hf
    if not path.exists():
        raise ConfigError(f"there is no file {shown(path)}; {MODELS}")
    if not path.is_file():
        raise ConfigError(f"{shown(path)} is a {'folder' if path.is_dir() else 'device or a pipe'}, not a file; "
                          f"{MODELS}")
    try:
        planned = planned_from_hf(read_json(path, cap=1_000_000), plain(name, 60))
    except FileFormatError as error:
        raise ConfigError(plain(error, 500)) from None
    except ConfigError as error:
        raise ConfigError(f"{shown(path)}: {error}") from None
    return replace(checked(planned), source=shown(path))


def checked(planned: PlannedModel) -> PlannedModel:
    """ConfigError for more layers than plans are made for."""
    if planned.config.layers > MOST_LAYERS:
        raise ConfigError(f"{planned.name} says it has {planned.config.layers:,} layers; plans are made up to "
                          f"{MOST_LAYERS:,}")
    return planned


def _resolved(text: str, path: Path) -> PlannedModel:
    """A file or a cached model, as `minitp generate --model` would find it, without fetching anything."""
    if path.exists() and not path.is_dir() and path.suffix.lower() != ".gguf":
        raise ConfigError(f"{shown(path)} is no config.json; {MODELS}")
    try:
        found = resolve(text, fetch=False)
    except (ConfigError, FetchError):
        raise unknown("model", text, list(models()), "; a config.json, its folder, a .gguf file or a cached Hub id "
                      "works too") from None
    if isinstance(found, Bundled):
        return _config_file(found.folder / "config.json", found.name)
    if found.is_dir():
        if not (found / "config.json").exists():
            raise ConfigError(f"the folder {shown(found)} has no config.json; {MODELS}")
        return _config_file(found / "config.json", text)
    from minitp.checkpoint.gguf import read_manifest
    from minitp.checkpoint.gguf_config import config_from_gguf
    try:
        return checked(PlannedModel(replace(config_from_gguf(read_manifest(found)), name=plain(found.stem, 60)),
                                    source=shown(found)))
    except (ConfigError, FileFormatError) as error:
        raise ConfigError(f"{shown(found)} can't be planned: {plain(error, 500)}") from None


def _text(value: Any) -> Any:
    """A text that ModelConfig checks itself."""
    return value
