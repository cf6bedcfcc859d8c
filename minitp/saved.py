"""What a forward pass leaves for its backward: a training pass's activations, by site. This is what fills memory."""
from collections.abc import Iterator, Mapping
from typing import Any

from minitp.errors import ConfigError


class Saved:
    """The arrays that layers saved, by site; a site may have saved several times (attention, group by group).

    Views and arrays saved twice (a block's x is its norm's x) are one memory and are counted once: `nbytes`. `peak` is
    the most that was held at once, as far as a drop has seen it: a forward pass adds, a backward pass drops. The
    gradients of activations that a backward holds for its weights are a part of it.
    """

    def __init__(self) -> None:
        self.peak = 0
        self._by_site: dict[str, list[Mapping[str, Any]]] = {}

    def keep(self, site: str, arrays: Mapping[str, Any]) -> None:
        self._by_site.setdefault(site, []).append(arrays)

    def __getitem__(self, site: str) -> Mapping[str, Any]:
        """What `site` saved last."""
        if site not in self._by_site:
            raise ConfigError(f"the forward at {site} saved nothing in this pass, or its backward has run already")
        return self._by_site[site][-1]

    def all(self, site: str) -> list[Mapping[str, Any]]:
        """All that `site` saved, in order."""
        return self._by_site.get(site, [])

    def drop(self, site: str, pending: Any = ()) -> None:
        """Forget what `site` and the sites below it saved: their backward, which held `pending`, is done."""
        self.peak = max(self.peak, memory_of((self._by_site, pending)))
        for name in [name for name in self._by_site if name == site or name.startswith(site + ".")]:
            del self._by_site[name]

    @property
    def nbytes(self) -> int:
        return memory_of(self._by_site)


def memory_of(held: Any) -> int:
    """Bytes of the arrays in mappings, lists and tuples; what several of them show is one memory."""
    owners = {id(owner): owner.nbytes for owner in map(_owner, _arrays(held))}
    return sum(owners.values())


def _arrays(held: Any) -> Iterator[Any]:
    if isinstance(held, (Mapping, list, tuple)):
        for part in held.values() if isinstance(held, Mapping) else held:
            yield from _arrays(part)
    elif hasattr(held, "nbytes"):
        yield held


def _owner(array: Any) -> Any:
    """The array whose memory this one shows."""
    while getattr(array, "base", None) is not None and hasattr(array.base, "nbytes"):
        array = array.base
    return array
