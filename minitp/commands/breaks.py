"""`--break SITE`: which all-reduces a run is to skip, found in the closed form before any weight is read."""
from collections.abc import Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase

from minitp.errors import ConfigError
from minitp.placement import Placement
from minitp.trace.predict import GenerationPlan, forward_pass
from minitp.trace.wording import kind_of_site, plain


def broken_sites(patterns: Sequence[str], placement: Placement, gathered: bool) -> tuple[str, ...]:
    """The sites that `patterns` name, in the order of a pass: layers.3.mlp.down, or with * for any text in it.

    Raises ConfigError for a site that a pass doesn't meet, that sums nothing, or whose sum the ranks need to draw the
    same token; a pattern takes of the sites that it fits those that can be broken.
    """
    if patterns and placement.ranks == 1:
        raise ConfigError("--break skips a sum over the ranks, and one rank has nothing to add: the text would stay as "
                          "it is. Use --ranks 2 or more")
    plan = GenerationPlan(placement, "slice", "float32", 1, (), 0, gathered)
    ops = {event.site: event.op for event in forward_pass(plan, "prefill", 0, 1)}
    broken = set()
    for pattern in patterns:
        if not pattern.strip():
            raise ConfigError(f"--break needs a site, and this one is empty. What can be broken is {_kinds(ops)}")
        fitting = [site for site in ops if fnmatchcase(site, _only_stars(pattern))]
        possible = [site for site in fitting if _why_not(site, ops[site]) is None]
        if not fitting:
            raise ConfigError(_unknown(pattern, list(ops)))
        if not possible:
            raise ConfigError(f"--break {plain(pattern, 60)}: {_why_not(fitting[0], ops[fitting[0]])}. "
                              f"What can be broken is {_kinds(ops)}")
        broken.update(possible)
    return tuple(site for site in ops if site in broken)


def _only_stars(pattern: str) -> str:
    """The pattern with [ and ? taken as they are."""
    return pattern.replace("[", "[[]").replace("?", "[?]")


def _why_not(site: str, op: str) -> str | None:
    """Why the collective at `site` can't be skipped; None where it can."""
    if op != "all_reduce":
        return (f"the collective at {site} is {op.replace('_', '-')}, which hands shards round: there is no partial "
                "sum that a rank could take for the whole")
    if site == "head":
        return ("the sum at head gives the logits from which every rank draws the next token: without it the ranks "
                "would draw different tokens and part ways")
    return None


def _kinds(ops: dict[str, str]) -> str:
    """The sites that can be broken, the layers left open."""
    return ", ".join(dict.fromkeys(kind_of_site(site) for site, op in ops.items() if _why_not(site, op) is None))


def _unknown(pattern: str, sites: list[str]) -> str:
    near = get_close_matches(pattern, [*dict.fromkeys(map(kind_of_site, sites)), *sites], 3)
    layers = [site.split(".")[1] for site in sites if site.startswith("layers.")]
    meant = f"; did you mean {' or '.join(near)}?" if near else "."
    return (f"--break {plain(pattern, 60)}: the ranks don't meet there{meant} A pass of this model meets at "
            f"{', '.join(dict.fromkeys(map(kind_of_site, sites)))} (layers {layers[0]} to {layers[-1]})")
