"""What the player says of a simulated run: that it is one, what a lane is, and who meets where it stands for many."""
import re
from typing import Any

from minitp.trace.file import Trace
from minitp.trace.schema import MESSAGES
from minitp.trace.simulated import is_simulated, lane_words, simulated_line, simulated_part
from minitp.trace.wording import count

MESSAGE = "message"                # the part of a sync that is one between stages
_LANES = 8                         # that are named


def banner(run: dict[str, Any]) -> list[str]:
    """Sentences to stand above everything; none for a real run."""
    if not is_simulated(run):
        return []
    return [simulated_line(run), *filter(None, [_who(run)])]


def _who(run: dict[str, Any]) -> str:
    """What a lane is, and for how many devices it stands."""
    told = simulated_part(run).get("ranks")
    stands = {one["stands_for"] for one in (told if isinstance(told, list) else [])
              if isinstance(one, dict) and _whole(one.get("stands_for"))}
    named = lanes(run)
    if not named or not stands:
        return ""
    is_, many = "A lane is one device, named by its place in the layout", max(stands)
    if len(stands) == 1:
        return f"{is_}{f': it stands for {many:,} that do the same at the same time' if many > 1 else ''}."
    some = [f"{name} for {words.rpartition('stands for ')[2] if 'stands for' in words else 1}"
            for name, words in zip(named, lane_words(run), strict=True)][:_LANES]
    more = f"; and {len(named) - _LANES:,} more" if len(named) > _LANES else ""
    return f"{is_}, and stands for those that do the same at the same time: {'; '.join(some)}{more}."


def lanes(run: dict[str, Any]) -> list[str]:
    """A short name for each lane of a predicted run: stage 3, or stage 0 dp 1 where several are of one stage; none for
    a run whose ranks are its own."""
    if not _predicted(run):
        return []
    coordinates = [words.split(" · ") for words in lane_words(run)]
    stages = [next((one for one in some if one.startswith("stage ")), "stage 0") for some in coordinates]
    others = [" ".join(one for one in some if one.startswith(("dp ", "tp "))) for some in coordinates]
    return [f"{stage} {other}".strip() if stages.count(stage) > 1 else stage
            for stage, other in zip(stages, others, strict=True)]


def meetings(trace: Trace, events: list[int]) -> tuple[list[int], list[str]]:
    """For each event of a predicted run how many devices meet at it, and who: (8, "8 devices of stage 0 (tp)"). Of any
    other run 0 and ""."""
    run = trace.run
    if not _predicted(run):
        return [0] * len(events), [""] * len(events)
    sizes = run["mesh"] if isinstance(run.get("mesh"), dict) else {}
    told = simulated_part(run).get("ranks")
    stages = [one["pp"] if isinstance(one, dict) and _whole(one.get("pp")) else 0
              for one in (told if isinstance(told, list) else [])]
    number = max(sizes["pp"], 1) if _whole(sizes.get("pp")) else 1
    rows = zip(*(trace.words(name)[events].tolist() for name in ("axis", "op", "phase")),
               trace.events["rank"][events].tolist(), strict=True)
    found = []
    for axis, op, phase, rank in rows:
        stage = stages[rank] if rank < len(stages) else 0
        size = sizes[axis] if _whole(sizes.get(axis)) else 1
        found.append(_message(op, phase, stage, number) if op in MESSAGES else
                     (2, "the first and the last stage") if axis == "ends" else
                     (size, f"the {count(size, 'stage')} of the pipeline") if axis == "pp" else
                     (size, f"{count(size, 'replica' if axis == 'dp' else 'device')} of stage {stage:,} "
                            f"({'dp' if axis == 'dp' else 'tp'})"))
    return [size for size, _ in found], [words for _, words in found]


def _message(op: str, phase: str, stage: int, stages: int) -> tuple[int, str]:
    """Forward goes to the next stage, backward to the one before; a token goes back to the first."""
    away = -1 if phase == "backward" else 1
    source, to = (stage, (stage + away) % stages) if op == MESSAGES[0] else ((stage - away) % stages, stage)
    return 2, f"stage {source:,} sends to stage {to:,}"


def _predicted(run: dict[str, Any]) -> bool:
    """Whether lanes are places in a layout; a replay's are the ranks of the run."""
    return is_simulated(run) and isinstance(simulated_part(run).get("layout"), str)


def _whole(number: Any) -> bool:
    return type(number) is int and 0 <= number < 2**31


def in_groups(text: str, names: list[str]) -> str:
    """A caption where a lane stands for the devices that meet: they are no ranks of the picture, and lanes have names.
    """
    for rank, device in (("very rank", "very device of the group"), ("ach rank", "ach device of the group"),
                         ("no rank", "no device"), ("the ranks'", "the devices'"), ("on one rank only",
                                                                                   "on one device only")):
        text = text.replace(rank, device)

    def named(found: re.Match[str]) -> str:
        number = int(found[2])
        name = names[number] if number < len(names) else f"rank {number}"
        return name[:1].upper() + name[1:] if found[1] == "R" else name

    return re.sub(r"([Rr])ank (\d{1,6})", named, text)
