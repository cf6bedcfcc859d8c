"""What the header of a trace says of its run, as far as it can be believed: it may be a stranger's."""
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from minitp.config import ModelConfig
from minitp.errors import MinitpError
from minitp.placement import Placement
from minitp.trace.wording import plain
from minitp.view.packing import word

_SIZES = ("hidden", "layers", "heads", "kv_heads", "head_size", "ffn", "vocab")
_MOST_LAYERS, _MOST_RANKS, _LARGEST = 1000, 4096, 2**31 - 1      # of a placement that is asked for every parameter


@dataclass(frozen=True)
class Words:
    """The first sequence of a run in words: what it read and what it wrote; where no text was kept, "#id"."""
    prompt_ids: list[int]
    prompt: list[str]
    ids: list[int]
    pieces: list[str]

    others: dict[int, str]         # tokens that ranks offered: the text of each

    def by_id(self, wanted: Iterable[int]) -> dict[str, str]:
        """The text of the tokens that are wanted, by id, as far as it is known."""
        known = self.others | dict(zip(self.prompt_ids, self.prompt, strict=True)) \
            | dict(zip(self.ids, self.pieces, strict=True))
        return {str(i): known[i] for i in sorted(set(wanted)) if i in known}


def part(run: dict[str, Any], key: str) -> dict[str, Any]:
    """An object of the header; empty where it holds something else."""
    return run[key] if isinstance(run.get(key), dict) else {}


def model_of(run: dict[str, Any]) -> dict[str, Any]:
    """The model's sizes and switches, each of its type; 0 and "" where the header doesn't say."""
    given = part(run, "model")
    sizes = {key: given[key] if type(given.get(key)) is int and 0 <= given[key] <= _LARGEST else 0 for key in _SIZES}
    switches = {key: given.get(key) is True for key in ("gated", "tied", "parallel_block")}
    names = {key: plain(given.get(key, ""), 40) for key in ("name", "activation", "norm")}
    return names | sizes | switches


def placement_of(run: dict[str, Any]) -> Placement | None:
    """Who holds what, where the header says it; None where it doesn't, or can't be believed."""
    try:
        config, where = ModelConfig.from_dict(run["model"]), run["placement"]
        if config.layers > _MOST_LAYERS or max(config.heads, config.kv_heads) > _LARGEST \
                or where["ranks"] != run["ranks"] or run["ranks"] > _MOST_RANKS:
            return None
        return Placement(config, where["ranks"], where["embedding"], where["cut"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, MinitpError):
        return None


def words_of(run: dict[str, Any]) -> Words:
    """The words of the first sequence."""
    prompt, ids = _ids(run.get("prompts")), _ids(run.get("tokens"))
    others = {int(key): word(text) for key, text in part(run, "words").items()
              if key.isascii() and key.isdigit() and len(key) <= 10 and isinstance(text, str)}
    return Words(prompt, _pieces(run.get("prompt_pieces"), prompt), ids, _pieces(run.get("pieces"), ids), others)


def sequences(run: dict[str, Any]) -> int:
    """How many texts ran in one batch."""
    batch = part(run, "generation").get("batch")
    return batch if type(batch) is int and 1 <= batch <= _LARGEST else 1


def _ids(given: Any) -> list[int]:
    """One list of ids, or the first of several."""
    if isinstance(given, list) and given and isinstance(given[0], list):
        given = given[0]
    if not isinstance(given, list):
        return []
    return [i if type(i) is int and 0 <= i <= _LARGEST else 0 for i in given]


def _pieces(given: Any, ids: list[int]) -> list[str]:
    if isinstance(given, list) and given and isinstance(given[0], list):
        given = given[0]
    texts = given if isinstance(given, list) else []
    return [word(texts[k]) if k < len(texts) and isinstance(texts[k], str) else f"#{ids[k]}" for k in range(len(ids))]
