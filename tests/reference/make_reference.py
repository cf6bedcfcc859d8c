"""Writes models/<name>/: small random checkpoints as `transformers` saves them, and what it makes of them in float64.

    python tests/reference/make_reference.py

expected.npz    ids (B, T), logits (B, T, V), loss (mean next-token cross entropy); where the spec says `padded`, also
                a batch of unequal prompts, each row evaluated alone: padded_ids (rows, T), padded_lengths,
                padded_logits (NaN past a row's length), greedy_ids (rows, 8), greedy_logits (rows, 8, V),
                greedy_gap (rows, 8)
gradients.npz   d loss / d parameter in float64, under the parameter's name in the file; a tied table's is the sum of
                both uses
"""
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from exact import exact, gap, greedy, logits_of
from huggingface_hub.dataclasses import strict
from safetensors import safe_open
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
)
from transformers.pytorch_utils import Conv1D
from transformers.utils.logging import disable_progress_bar

FOLDER = Path(__file__).parent / "models"
LENGTHS, STEPS = (1, 3, 7), 8            # of the padded batch, and tokens decoded from each of its rows


@strict
class FreeHeadLlamaConfig(LlamaConfig):
    """The library's modeling code takes any head_dim; only its config insists that D is a multiple of H. Not here."""

    def validate_architecture(self) -> None:
        """Nothing to refuse."""


@dataclass(frozen=True)
class Spec:
    """One checkpoint: how to build and save it, and what to compute from it."""

    seed: int
    config: PreTrainedConfig
    model: type[PreTrainedModel] = LlamaForCausalLM
    shape: tuple[int, int] = (2, 9)      # B, T of the ids
    dtype: torch.dtype = torch.float32
    shard_size: str = "1GB"
    padded: bool = False
    gradients: bool = False
    respell: Callable[[dict], dict] | None = None    # rewrites config.json


def old_spelling(config: dict) -> dict:
    """config.json as older versions of `transformers` wrote it: rope_theta, rope_scaling and torch_dtype."""
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = {"type": rope.pop("rope_type"), **rope}
    config["torch_dtype"] = config.pop("dtype")
    del config["transformers_version"]
    return config


ENDLESS: dict = {"bos_token_id": None, "eos_token_id": None}

SPECS = {
    "llama-untied": Spec(
        seed=1, padded=True, gradients=True,
        config=FreeHeadLlamaConfig(
            hidden_size=28, num_attention_heads=6, num_key_value_heads=2, head_dim=8, intermediate_size=22,
            vocab_size=53, num_hidden_layers=2, max_position_embeddings=64, **ENDLESS)),
    "llama-tied-linear": Spec(
        seed=2, respell=old_spelling,
        config=LlamaConfig(
            hidden_size=36, num_attention_heads=9, num_key_value_heads=3, intermediate_size=25, vocab_size=61,
            num_hidden_layers=3, max_position_embeddings=64, tie_word_embeddings=True, rms_norm_eps=1e-5,
            rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}, **ENDLESS)),
    "llama-llama3rope": Spec(
        seed=3, shape=(1, 100),          # positions well past the 64 of the original model
        config=LlamaConfig(
            hidden_size=32, num_attention_heads=4, num_key_value_heads=2, head_dim=16, intermediate_size=20,
            vocab_size=29, num_hidden_layers=2, max_position_embeddings=512, tie_word_embeddings=True,
            rms_norm_eps=1e-5, rope_parameters={
                "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": 64}, **ENDLESS)),
    "qwen2-like": Spec(
        seed=4, gradients=True, model=Qwen2ForCausalLM,
        config=Qwen2Config(
            hidden_size=24, num_attention_heads=6, num_key_value_heads=2, intermediate_size=26, vocab_size=43,
            num_hidden_layers=2, max_position_embeddings=64, tie_word_embeddings=True, use_sliding_window=False,
            rope_parameters={"rope_type": "default", "rope_theta": 1000000.0}, **ENDLESS)),
    "gpt2": Spec(
        seed=5, padded=True, gradients=True, model=GPT2LMHeadModel,
        config=GPT2Config(n_embd=20, n_head=5, n_layer=2, vocab_size=47, n_positions=32, **ENDLESS)),
    "gpt2-gelu-inner": Spec(
        seed=6, model=GPT2LMHeadModel,
        config=GPT2Config(n_embd=20, n_head=4, n_layer=2, vocab_size=47, n_positions=32, n_inner=30,
                          activation_function="gelu", **ENDLESS)),
    "llama-sharded": Spec(
        seed=7, dtype=torch.bfloat16, shard_size="6KB",
        config=LlamaConfig(
            hidden_size=24, num_attention_heads=4, num_key_value_heads=2, intermediate_size=20, vocab_size=41,
            num_hidden_layers=2, max_position_embeddings=64, **ENDLESS)),
    "llama-mlp-bias": Spec(
        seed=8,
        config=LlamaConfig(
            hidden_size=24, num_attention_heads=6, num_key_value_heads=3, intermediate_size=22, vocab_size=37,
            num_hidden_layers=2, max_position_embeddings=64, attention_bias=True, mlp_bias=True, **ENDLESS)),
}


@torch.no_grad()
def fill(model: PreTrainedModel, rng: np.random.Generator) -> None:
    """Random weights under which each part matters: scores and logits spread, norms differ from 1, biases from 0."""
    fan_in_first = {name + ".weight" for name, module in model.named_modules() if isinstance(module, Conv1D)}
    readers = {id(model.get_output_embeddings().weight)}                 # the head, tied or not: logits spread by 2.5
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            values = 0.3 * rng.standard_normal(parameter.shape)
        elif parameter.ndim == 1:
            values = rng.uniform(0.5, 1.5, parameter.shape)
        elif id(parameter) in readers:
            values = 2.5 * rng.standard_normal(parameter.shape) / parameter.shape[1] ** 0.5
        elif "embed_tokens" in name or "wpe" in name:
            values = 0.7 * rng.standard_normal(parameter.shape)
        else:
            fan_in = parameter.shape[0 if name in fan_in_first else 1]
            values = 1.3 * rng.standard_normal(parameter.shape) / fan_in ** 0.5
        parameter.copy_(torch.as_tensor(values))


def load(spec: Spec, folder: Path) -> torch.nn.Module:
    """The saved checkpoint, read back by the library, in float64."""
    config = type(spec.config).from_pretrained(folder)
    return exact(spec.model.from_pretrained(folder, config=config, dtype=spec.dtype, attn_implementation="eager"))


def loss_of(logits: torch.Tensor, ids: np.ndarray) -> torch.Tensor:
    """Mean over all rows and positions but the last of -log p(next token)."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), torch.as_tensor(ids)[:, 1:].flatten())


def padded_batch(model: torch.nn.Module, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Prompts of unequal length, right-padded with zeros in the arrays but each evaluated alone."""
    size = model.config.vocab_size
    ids = np.zeros((len(LENGTHS), max(LENGTHS)), np.int64)
    logits = np.full((*ids.shape, size), np.nan)
    decoded = []
    for row, length in enumerate(LENGTHS):
        ids[row, :length] = rng.integers(size, size=length)
        with torch.no_grad():
            logits[row, :length] = logits_of(model, ids[row:row + 1, :length])[0].numpy()
        decoded.append(greedy(model, ids[row, :length], STEPS))
    greedy_ids, greedy_logits = map(np.array, zip(*decoded, strict=True))
    return {"padded_ids": ids, "padded_lengths": np.array(LENGTHS), "padded_logits": logits, "greedy_ids": greedy_ids,
                "greedy_logits": greedy_logits, "greedy_gap": gap(greedy_logits)}


def make(name: str, spec: Spec) -> None:
    """Builds, saves, reads back, evaluates and freezes one checkpoint."""
    folder, rng = FOLDER / name, np.random.default_rng(spec.seed)
    shutil.rmtree(folder, ignore_errors=True)
    model = spec.model(spec.config)
    fill(model, rng)
    model.to(spec.dtype).save_pretrained(folder, max_shard_size=spec.shard_size)
    (folder / "generation_config.json").unlink(missing_ok=True)

    ids = rng.integers(spec.config.vocab_size, size=spec.shape)
    ids[0, 0], ids[-1, -1] = 0, spec.config.vocab_size - 1               # both ends of the table
    model = load(spec, folder)
    logits = logits_of(model, ids)
    loss = loss_of(logits, ids)
    loss.backward()
    expected = {"ids": ids, "logits": logits.detach().numpy(), "loss": np.float64(loss.item())}
    if spec.padded:
        expected |= padded_batch(model, rng)
    np.savez_compressed(folder / "expected.npz", **expected)
    if spec.gradients:
        gradients = {name: parameter.grad.numpy() for name, parameter in model.named_parameters()}
        np.savez_compressed(folder / "gradients.npz", **gradients)

    if spec.respell:
        path = folder / "config.json"
        path.write_text(json.dumps(spec.respell(json.loads(path.read_text())), indent=2, sort_keys=True) + "\n")


def check(name: str, spec: Spec) -> None:
    """Reads all back: same logits from the final files, the library's own float32 close by, nothing degenerate."""
    folder = FOLDER / name
    expected = np.load(folder / "expected.npz")
    ids, logits = expected["ids"], expected["logits"]
    with torch.no_grad():
        assert np.array_equal(logits_of(load(spec, folder), ids).numpy(), logits), "the saved files give other logits"
        config = type(spec.config).from_pretrained(folder)
        plain = spec.model.from_pretrained(folder, config=config, dtype=torch.float32)
        error = np.abs(plain(input_ids=torch.as_tensor(ids)).logits.numpy() - logits).max()
    assert error < 1e-3, f"the library in its own float32 is {error} away"
    assert 1 < logits.std() < 5
    assert logits.argmax(-1).ravel().tolist() != ids.ravel().tolist(), "the model just repeats its input"

    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            tensors |= {key: file.get_tensor(key) for key in file.keys()}    # noqa: SIM118 (not a dict)
    assert all(tensor.dtype == spec.dtype for tensor in tensors.values())
    assert all(tensor.float().std() > 0.05 for tensor in tensors.values())
    if spec.dtype == torch.bfloat16:
        assert len(list(folder.glob("model-*.safetensors"))) >= 3 and (folder / "model.safetensors.index.json").exists()
    if spec.gradients:
        gradients = np.load(folder / "gradients.npz")
        assert {key: gradients[key].shape for key in gradients} == {key: tuple(t.shape) for key, t in tensors.items()}
    smallest = f", smallest greedy gap {expected['greedy_gap'].min():.3f}" if spec.padded else ""
    if spec.padded:
        assert expected["greedy_gap"].min() > 0.01, smallest
    print(f"{name}: {len(tensors)} tensors, {sum(path.stat().st_size for path in folder.iterdir())} bytes, "
          f"loss {expected['loss']:.4f}, logits' std {logits.std():.2f}, float32 within {error:.1e}{smallest}")


if __name__ == "__main__":
    disable_progress_bar()
    torch.set_num_threads(1)
    for name, spec in SPECS.items():
        make(name, spec)
        check(name, spec)
    total = sum(path.stat().st_size for path in FOLDER.rglob("*") if path.is_file())
    assert total < 900_000
    print(f"{total} bytes in all")
