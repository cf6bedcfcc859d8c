"""Writes smollm2.npz: what `transformers` computes in float64 from the SmolLM2-135M-Instruct of a GGUF file (Q4_1).

    python tests/reference/make_smollm2.py --gguf SmolLM2-135M-Instruct.Q4_1.gguf

vocabulary (n)          ids whose logits are kept: both ends, both sides of each cut over 2…8 ranks, and random ones
<name>_text             the prompt as text, special tokens written out; name is plain, chat or mixed
<name>_prompt (t)       its ids
<name>_greedy (64)      the ids decoded greedily, past any end-of-text token
<name>_logits (t+63, n) logits at `vocabulary`, at each position of the prompt and of the decoded tokens but the last
<name>_max, _argmax, _gap (t+63)   the best logit, its id, and how far it is above the second best
plain_last (49152)      all logits of the last position of the first prompt
"""
import argparse
import re
from pathlib import Path

import numpy as np
import torch
from bpe_reference import BytePairReference
from exact import exact, float32_means_float64, gap, logits_of
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from jinja2.sandbox import ImmutableSandboxedEnvironment
from make_tokens import read_gguf
from transformers import LlamaConfig, LlamaForCausalLM

OUTPUT = Path(__file__).parent / "smollm2.npz"
STEPS, KEPT = 64, 200
PLAIN = "The capital of France is"
CHAT = "Explain in a few sentences why the sky is blue."
MIXED = "Menu: 3 cafés à 2.50 €, 12 croissants à 1.20 €."
NAMES = {                                # GGUF's name of a tensor → the library's
    "token_embd": "model.embed_tokens", "output_norm": "model.norm",
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


def library_name(name: str) -> str:
    """blk.3.attn_q.weight → model.layers.3.self_attn.q_proj.weight"""
    block, stem, kind = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(\w+)", name).groups()
    return (f"model.layers.{block}." if block else "") + f"{NAMES[stem]}.{kind}"


def half_split(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from interleaved rotary pairs (0, 1), (2, 3)… to the two halves (0, E/2), (1, E/2 + 1)…"""
    rows, columns = weight.shape
    pairs = weight.reshape(heads, rows // heads // 2, 2, columns)
    return pairs.swapaxes(1, 2).reshape(rows, columns)


def read_model(reader: GGUFReader) -> LlamaForCausalLM:
    """The file's model in float64: every tensor dequantized, q and k put back into the library's order of rows."""
    def value(key: str):
        return reader.fields[key].contents()

    heads, kv_heads = value("llama.attention.head_count"), value("llama.attention.head_count_kv")
    config = LlamaConfig(
        vocab_size=value("llama.vocab_size"), hidden_size=value("llama.embedding_length"),
        intermediate_size=value("llama.feed_forward_length"), num_hidden_layers=value("llama.block_count"),
        num_attention_heads=heads, num_key_value_heads=kv_heads, max_position_embeddings=value("llama.context_length"),
        rms_norm_eps=value("llama.attention.layer_norm_rms_epsilon"),        # float32's 1e-5, as it stands in the file
        rope_parameters={"rope_type": "default", "rope_theta": value("llama.rope.freq_base")},
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None)

    def tensor(stored: ReaderTensor) -> torch.Tensor:
        weight = dequantize(stored.data, stored.tensor_type).astype(np.float64)
        swapped = heads if ".attn_q." in stored.name else kv_heads if ".attn_k." in stored.name else 0
        return torch.from_numpy(half_split(weight, swapped) if swapped else weight)

    weights = {library_name(stored.name): tensor(stored) for stored in reader.tensors}
    model = LlamaForCausalLM._from_config(config, attn_implementation="eager", dtype=torch.float64)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected
    assert model.lm_head.weight is model.model.embed_tokens.weight
    return exact(model)


def chat_text(reader: GGUFReader, question: str) -> str:
    """The file's own template around one user message; it adds its default system message."""
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(reader.fields["tokenizer.chat_template"].contents())
    return template.render(messages=[{"role": "user", "content": question}], add_generation_prompt=True)


def kept_vocabulary(size: int) -> np.ndarray:
    """KEPT ids: both ends, both sides of the cuts over 2…8 ranks (larger shards first), the rest at random."""
    cuts = {sum(-(-(size - rank) // ranks) for rank in range(r)) for ranks in range(2, 9) for r in range(1, ranks)}
    fixed = {0, size - 1} | cuts | {cut - 1 for cut in cuts}
    rest = np.random.default_rng(0).permutation(np.setdiff1d(np.arange(size), list(fixed)))
    return np.sort(np.concatenate([list(fixed), rest[:KEPT - len(fixed)]]))


@torch.no_grad()
def evaluate(model: LlamaForCausalLM, prompt: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Decodes STEPS ids with the library's cache, then evaluates all positions at once: both must choose the same."""
    with float32_means_float64():
        ids = model.generate(torch.tensor([prompt]), max_new_tokens=STEPS, do_sample=False, pad_token_id=0)[0].numpy()
    logits = logits_of(model, ids[None, :-1])[0].numpy()
    chosen = ids[len(prompt):]
    assert len(chosen) == STEPS and np.array_equal(logits[len(prompt) - 1:].argmax(-1), chosen)
    return chosen, logits


def main(gguf: Path) -> None:
    """Evaluates the three prompts, freezes them, prints the texts and the smallest gaps."""
    reader, tokenizer = GGUFReader(gguf), BytePairReference(*read_gguf(gguf))
    model = read_model(reader)
    vocabulary = kept_vocabulary(model.config.vocab_size)
    frozen = {"vocabulary": vocabulary}
    for name, text in {"plain": PLAIN, "chat": chat_text(reader, CHAT), "mixed": MIXED}.items():
        prompt = tokenizer.encode(text)
        chosen, logits = evaluate(model, prompt)
        gaps = gap(logits)
        frozen |= {
            f"{name}_text": np.array(text), f"{name}_prompt": np.array(prompt), f"{name}_greedy": chosen,
            f"{name}_logits": logits[:, vocabulary].astype(np.float32), f"{name}_max": logits.max(-1),
            f"{name}_argmax": logits.argmax(-1), f"{name}_gap": gaps}
        if name == "plain":
            frozen["plain_last"] = logits[len(prompt) - 1].astype(np.float32)
        decoding = gaps[len(prompt) - 1:]
        print(f"--- {name}: {len(prompt)} ids, smallest gap while decoding {decoding.min():.4f}, "
              f"in the prompt {gaps[:len(prompt)].min():.4f}\n{text!r} →\n{tokenizer.decode(chosen)!r}")
        assert decoding.min() > 0.01, "choose another prompt: float32 may decode other tokens"

    np.savez_compressed(OUTPUT, **frozen)
    saved = np.load(OUTPUT)
    assert all(np.array_equal(saved[key], value) for key, value in frozen.items())
    assert OUTPUT.stat().st_size < 400_000
    print(f"{OUTPUT.name}: {OUTPUT.stat().st_size} bytes")
    for key in saved:
        print(f"  {key} {saved[key].dtype}{list(saved[key].shape)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--gguf", type=Path, required=True)
    main(parser.parse_args().gguf)
