"""Reads what a tokenizer is made of: a GGUF's metadata, or the JSON files of a checkpoint folder. Both are hostile.

Each reader returns the keyword arguments of `Tokenizer`.
"""
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from minitp.checkpoint.files import read_bounded, read_json
from minitp.errors import FileFormatError

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4      # GGUF's token types
LARGEST_TOKENIZER = 128 << 20                # bytes; the largest published ones have about 35 MB
LARGEST_CONFIG = 8 << 20

GPT2, DIGITS = "", "digits"
WORDS = {
    "gpt-2": GPT2,
    "smollm": DIGITS,
    "llama-bpe": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                 r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen2": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
             r"|\s*[\r\n]+|\s+(?!\S)|\s+",
}
"""How text is cut into words, which merges never cross, by `tokenizer.ggml.pre`. GPT-2's pattern is the library's own;
SmolLM cuts each digit off first; Llama 3 takes up to three digits at once, Qwen 2 one."""


def from_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """A byte-level BPE from `tokenizer.ggml.…`; what isn't known is refused by name, never guessed."""
    from tokenizers import AddedToken, Tokenizer, decoders, models
    field = {key.removeprefix("tokenizer.ggml."): value for key, value in metadata.items()}
    tokens, types, merges = gguf_lists(field)
    pre = known_pre(field)
    try:
        backend = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges,
                                       ignore_merges=pre == "llama-bpe"))
        backend.pre_tokenizer = pre_tokenizer(pre)
        backend.decoder = decoders.ByteLevel()
        if pre == "qwen2":                   # its published tokenizer composes accents first
            from tokenizers.normalizers import NFC
            backend.normalizer = NFC()
        added = [(token, kind) for token, kind in zip(tokens, types, strict=True) if kind in (CONTROL, USER_DEFINED)]
        backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t, k in added if k == CONTROL])
        backend.add_tokens([AddedToken(t, special=False, normalized=False) for t, k in added if k == USER_DEFINED])
    except Exception as error:               # the library raises a bare Exception
        raise FileFormatError(f"the GGUF's tokens and merges make no tokenizer: {error}") from error
    ends = [token_id(field, f"{kind}_token_id", len(tokens)) for kind in ("eos", "eot", "eom")]
    template = metadata.get("tokenizer.chat_template")
    return {"backend": backend, "bos": token_id(field, "bos_token_id", len(tokens)),
            "add_bos": bool(field.get("add_bos_token", pre == "llama-bpe")),     # Llama 3's files may leave it out
            "end_tokens": [token for token in ends if token is not None],
            "chat_template": template if isinstance(template, str) else None, "name": f"GGUF ({pre})"}


def known_pre(field: Mapping[str, Any]) -> str:
    """The rule that cuts text into words, by name.

    A file without it is older than the field, and its digits and contractions would be cut by another model's rule:
    right-looking text, wrong ids, wrong answers. So it is refused.
    """
    if field.get("model") != "gpt2":
        raise FileFormatError(f"tokenizer.ggml.model is {field.get('model')!r}; minitp reads 'gpt2' (byte-level BPE)")
    pre = field.get("pre")
    if pre is None:
        raise FileFormatError("the GGUF has no tokenizer.ggml.pre, so how digits and contractions are cut is "
                              "unknown, and a guess would give wrong ids; write the model's own with "
                              f"gguf-new-metadata --pre-tokenizer NAME IN OUT, NAME one of {', '.join(WORDS)}")
    if not isinstance(pre, str) or pre not in WORDS:
        raise FileFormatError(f"tokenizer.ggml.pre is {pre!r}; minitp knows {', '.join(WORDS)}")
    return pre


def gguf_lists(field: Mapping[str, Any]) -> tuple[list[str], list[int], list[tuple[str, str]]]:
    """Tokens, their types and the merges as pairs, checked against each other."""
    tokens, merges = strings(field, "tokens"), strings(field, "merges")
    types = field.get("token_type", [NORMAL] * len(tokens))
    types = types.tolist() if hasattr(types, "tolist") else types          # (a reader may give an array of numbers)
    if not tokens or not isinstance(types, list) or len(types) != len(tokens):
        raise FileFormatError(f"tokenizer.ggml: {len(tokens)} tokens don't go with their list of types")
    if len(set(tokens)) != len(tokens):
        raise FileFormatError(f"tokenizer.ggml.tokens names {len(tokens) - len(set(tokens))} token(s) twice")
    pairs = []
    for merge in merges:
        left, space, right = merge.partition(" ")
        if not space or not left or not right or " " in right:
            raise FileFormatError(f"tokenizer.ggml.merges has {merge[:80]!r}; a merge is two pieces and a space")
        pairs.append((left, right))
    return tokens, types, pairs


def strings(field: Mapping[str, Any], key: str) -> list[str]:
    """A list of strings, as GGUF's arrays are read."""
    value = field.get(key)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FileFormatError(f"tokenizer.ggml.{key} must be a list of strings, got {type(value).__name__}")
    return value


def token_id(field: Mapping[str, Any], key: str, size: int) -> int | None:
    """A special token's id, or None where the file names none."""
    value = field.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < size:
        raise FileFormatError(f"{key} is {value!r}; it must be a token id below {size}")
    return value


def pre_tokenizer(pre: str) -> Any:
    """The library's parts for one of WORDS."""
    from tokenizers import Regex, pre_tokenizers
    words = WORDS[pre]
    if words == GPT2:
        return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if words == DIGITS:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(words), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def from_folder(folder: Path) -> dict[str, Any]:
    """tokenizer.json for the pieces; the other files for BOS, end tokens and the chat template, each optional.

    BOS is added where tokenizer_config.json says so, else where tokenizer.json's own post-processor would.
    """
    backend = load_backend(folder)
    config = optional_json(folder / "tokenizer_config.json")
    named = optional_json(folder / "special_tokens_map.json") | {k: v for k, v in config.items() if v is not None}
    numbered = optional_json(folder / "config.json") | optional_json(folder / "generation_config.json")
    ends = numbered.get("eos_token_id")
    ends = [named_token(backend, named.get("eos_token")), *(ends if isinstance(ends, list) else [ends])]
    bos = named_token(backend, named.get("bos_token"))
    bos = numbered.get("bos_token_id") if bos is None else bos
    for token in (bos, *ends):
        if token is not None and (not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < 1 << 32):
            raise FileFormatError(f"{folder}: BOS or end token is {token!r}; it must be a token id")
    # a config may number a BOS that the tokenizer lacks (random or trimmed checkpoints); nothing can be built on it
    known = [token for token in (bos, *ends) if token is not None and backend.id_to_token(token) is not None]
    add_bos = config.get("add_bos_token")
    if not isinstance(add_bos, bool):
        add_bos = bos is not None and first_added(backend) == bos
    return {"backend": backend, "bos": bos if bos in known else None, "add_bos": add_bos,
            "end_tokens": [token for token in ends if token in known],
            "chat_template": folder_template(folder, config), "name": folder.name or str(folder)}


def byte_backend() -> Any:
    """A byte-level BPE without merges whose ids are the byte values: a byte a token, as a tokenizer.json can say it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    from minitp.tokenizer import byte_symbols
    backend = Tokenizer(models.BPE(vocab=byte_symbols(), merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def load_backend(folder: Path) -> Any:
    """tokenizer.json through the library's own parser, which bounds the depth; the size is bounded here."""
    from tokenizers import Tokenizer
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise FileFormatError(f"{folder} has no tokenizer.json, the one tokenizer file minitp reads; "
                              "transformers writes it: AutoTokenizer.from_pretrained(folder).save_pretrained(folder)")
    data = read_bounded(path, LARGEST_TOKENIZER)
    try:
        return Tokenizer.from_buffer(data)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:           # a panic of the Rust library isn't an Exception
        raise FileFormatError(f"{path} is no tokenizer: {str(error)[:300]}") from error


def first_added(backend: Any) -> int | None:
    """What tokenizer.json's post-processor puts in front of a text."""
    try:
        return next(iter(backend.encode("").ids), None)
    except Exception as error:               # a post-processor may name a token that isn't there
        raise FileFormatError(f"tokenizer.json's post-processor fails on an empty text: {error}") from error


def optional_json(path: Path) -> dict[str, Any]:
    """A JSON object, or an empty one where there is no such file."""
    return read_json(path, LARGEST_CONFIG) if path.is_file() else {}


def named_token(backend: Any, token: Any) -> int | None:
    """The id of a token given as text or as {"content": text}."""
    if isinstance(token, dict):
        token = token.get("content")
    return backend.token_to_id(token) if isinstance(token, str) else None


def folder_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """A file of its own, else the field; of several named templates, the one named default."""
    own = folder / "chat_template.jinja"
    if own.is_file():
        return read_bounded(own, LARGEST_CONFIG).decode("utf-8", "replace")
    template = config.get("chat_template")
    if isinstance(template, list):
        named = [entry for entry in template if isinstance(entry, dict)]
        template = next((entry.get("template") for entry in named if entry.get("name") == "default"), None)
    return template if isinstance(template, str) else None
