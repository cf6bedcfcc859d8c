"""The list of models: what lies in the models folder and nothing else, whatever name is asked for."""
import json

import pytest

from minitp.config import TINY
from minitp.errors import ConfigError, MinitpError
from minitp.models import Bundled
from minitp.view.known_models import MOST_LAYERS, known_config, known_models

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 100, "max_position_embeddings": 64}


def folder(at, name, **values):
    (at / name).mkdir(parents=True)
    (at / name / "config.json").write_text(json.dumps(LLAMA | values))
    return at / name


def test_without_a_folder_there_is_the_bundled_one(model_cache):
    assert known_models() == {"tiny": Bundled("tiny").folder} and known_config("tiny") == TINY


def test_a_config_folder_is_known_by_its_name_without_weights(model_cache):
    folder(model_cache, "mine")
    assert list(known_models()) == ["tiny", "mine"]
    config = known_config("mine")
    assert (config.name, config.hidden, config.kv_heads) == ("mine", 64, 2)


@pytest.mark.parametrize("name", ["/etc/passwd", "../mine", "mine/../../x", "", ".", "x" * 10_000, "<b>"])
def test_names_are_not_paths(model_cache, tmp_path, name):
    folder(tmp_path, "x")
    folder(model_cache.parent, "mine")
    with pytest.raises(ConfigError, match="no model"):
        known_config(name)


def test_links_lead_nowhere(model_cache, tmp_path):
    outside = folder(tmp_path, "outside")
    model_cache.mkdir(parents=True)
    (model_cache / "linked").symlink_to(outside)
    (model_cache / "half").mkdir()
    (model_cache / "half" / "config.json").symlink_to(outside / "config.json")
    assert list(known_models()) == ["tiny"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model_type": "other"}', json.dumps(LLAMA | {"hidden_size": -1}),
                                  json.dumps(LLAMA | {"num_hidden_layers": MOST_LAYERS + 1}), "x" * 1_100_000])
def test_broken_configs_say_so(model_cache, text):
    (model_cache / "broken").mkdir(parents=True)
    (model_cache / "broken" / "config.json").write_text(text)
    (model_cache / "no.gguf").write_text(text)
    for name in ("broken", "no.gguf"):
        with pytest.raises(MinitpError):
            known_config(name)


@pytest.mark.smollm2
def test_the_fetched_model_is_known_by_its_catalog_name(smollm2_path):
    assert known_models()["smollm2-135m"] == smollm2_path
    config = known_config("smollm2-135m")
    assert (config.layers, config.heads, config.kv_heads, config.name) == (30, 9, 3, "smollm2-135m")
