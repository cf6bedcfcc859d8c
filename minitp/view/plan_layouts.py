"""The layout search for a page: what fits, what doesn't and why, and a found layout put back into the inputs."""
from dataclasses import replace
from typing import Any

from minitp.errors import ConfigError
from minitp.plan.job import Training
from minitp.plan.layout import Layout
from minitp.plan.search import Candidate, Failure, Found, Limits, fewest, search, unfit
from minitp.plan.search_words import WHY, enough, unit
from minitp.plan.speed.decode import PassTime
from minitp.plan.units import both, duration
from minitp.trace.wording import count
from minitp.view.plan import Asked


def limits(asked: Asked) -> Limits:
    """What the search leaves as it is set: what `keep` names, cp, and all that isn't searched."""
    def kept(name: str) -> Any:
        return getattr(asked, name) if name in asked.keep else None

    return Limits(tp=kept("tp"), pp=kept("pp"), dp=kept("dp"), cp=asked.cp, ep=kept("ep"), zero=kept("zero"),
                  recompute=kept("recompute"), micro_batch=kept("micro"), chunks=kept("chunks"),
                  reserve=asked.reserve / 100, nominal=asked.nominal)


def found(asked: Asked) -> Found:
    """The search over all devices that were asked for. ConfigError where the limits leave no mesh."""
    return search(asked.planned(), whole_machine(asked).described(), asked.job(), limits(asked))


def whole_machine(asked: Asked) -> Asked:
    """The same with the machine as it was asked for, however many devices the sliders' layout takes."""
    return replace(asked, tp=1, pp=1, dp=1, cp=1, ep=1)


def enough_line(asked: Asked) -> str:
    """How many machines would do, where one doesn't."""
    machine = whole_machine(asked).described()
    return enough(fewest(asked.planned(), machine, asked.job(), limits(asked)), devices=machine.devices)


def rows(outcome: Found) -> list[dict[str, Any]]:
    """What fits, the fastest first: numbers that can be sorted, their units in the heads."""
    return [_row(one) for one in outcome.best]


def _row(one: Candidate) -> dict[str, Any]:
    row: dict[str, Any] = {"layout": str(one.layout)}
    if isinstance(one.job, Training):
        row |= {"micro-batch": one.job.micro_batch, "recompute": one.job.recompute}
    row |= {"held GB": round(one.held / 1e9, 2), "held GiB": round(one.held / 2**30, 2),
            "room GB": round(one.room / 1e9, 2)}
    time = one.time
    if isinstance(time, PassTime):
        return row | {"token ms (model)": round(time.seconds * 1e3, 3), "tokens/s (model)": round(time.tokens_per_s, 2),
                      "bound by (model)": time.bound}
    days = {"days (model)": round(time.days, 2)} if time.days else {}
    return row | {"step s (model)": round(time.seconds, 3), "tokens/s (model)": round(time.tokens_per_s),
                  "MFU % (model)": round(100 * time.mfu, 1), "bubble %": round(100 * time.bubble, 1), **days}


def failures(outcome: Found) -> list[dict[str, Any]]:
    """What doesn't, those that miss least first."""
    return [_failure(one) for one in outcome.failed]


def _failure(one: Failure) -> dict[str, Any]:
    return {"layout": str(one.layout), "why": WHY[one.why], "missing GB": round(one.missing / 1e9, 2) or None,
            "in words": one.text}


def summary_line(outcome: Found) -> str:
    """How many were tried, and what became of them."""
    reasons = "; ".join(f"{WHY[why]}: {number}" for why, number in sorted(outcome.reasons.items()))
    meshes = len(outcome.best) + len(outcome.failed)
    return (f"{outcome.tried:,} layouts of {meshes:,} {'mesh' if meshes == 1 else 'meshes'} of "
            f"{count(outcome.machine.devices, 'device')} were tried: {len(outcome.best):,} fit"
            + (f", {len(outcome.failed):,} don't ({reasons})." if outcome.failed else "."))


def best_line(outcome: Found) -> str:
    """The fastest in a sentence."""
    if not outcome.best:
        return f"No layout of {count(outcome.machine.devices, 'device')} carries this."
    one = outcome.best[0]
    return (f"The fastest is {one.layout}: {duration(one.seconds)} a {unit(one.job)} (a model), the fullest device "
            f"holds {both(one.held)}, {both(one.room)} are left.")


def loaded(asked: Asked, one: Candidate | Failure) -> Asked:
    """The inputs with a found layout in them."""
    layout: Layout = one.layout
    changed = replace(asked, tp=layout.tp, pp=layout.pp, dp=layout.dp, cp=layout.cp, ep=layout.ep,
                      sp=layout.sequence, zero=layout.zero, chunks=layout.chunks)
    if isinstance(one.job, Training):
        return replace(changed, micro=one.job.micro_batch, recompute=one.job.recompute)
    return replace(changed, sp=asked.sp, zero=asked.zero)


def possible(asked: Asked) -> str:
    """Why these inputs can't be laid out at all, whatever the memory; "" where they can."""
    try:
        why = unfit(asked.planned(), asked.layout(), asked.job())
    except ConfigError as error:
        return str(error)
    return "" if why is None else why[1]
