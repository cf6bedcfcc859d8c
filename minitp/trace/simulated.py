"""What a simulated trace says of itself. Its times are a model's, and every view must say so."""
from typing import Any

from minitp.trace.wording import count, plain

WORLD = "simulated"
NOT_MEASURED = "Simulated: a model, not measured."


def simulated_part(run: dict[str, Any]) -> dict[str, Any]:
    """`simulated` of a trace's header; empty where the run is a real one."""
    return run["simulated"] if isinstance(run.get("simulated"), dict) else {}


def is_simulated(run: dict[str, Any]) -> bool:
    return isinstance(run.get("simulated"), dict)


def warnings_in(run: dict[str, Any]) -> list[str]:
    """What a simulated trace warns of: that its run wouldn't fit the devices, say."""
    told = simulated_part(run).get("warnings")
    return [plain(one, 200) for one in told[:4]] if isinstance(told, list) else []


def simulated_line(run: dict[str, Any], warnings: bool = True) -> str:
    """The sentence that every view of a simulated trace shows; "" where the run is a real one. `warnings`: with them.

    Simulated: a model, not measured. A training step on 8xh100: 16 of 16,384 ranks are shown.
    """
    if not is_simulated(run):
        return ""
    told = simulated_part(run)
    what, machine = plain(told.get("model of", ""), 40), plain(told.get("machine", ""), 40)
    where = " on ".join(filter(None, (what[:1].upper() + what[1:], machine)))
    lanes, devices = run.get("ranks"), told.get("devices")
    if type(lanes) is int and type(devices) is int and 0 < lanes < devices < 2**31:
        where += f"{': ' * bool(where)}{lanes:,} of {count(devices, 'rank')} {'are' if lanes > 1 else 'is'} shown"
    return " ".join([f"{NOT_MEASURED} {where}." if where else NOT_MEASURED, *(warnings_in(run) if warnings else [])])


def lane_words(run: dict[str, Any]) -> list[str]:
    """For each lane of a simulated trace who it is and for how many: device 128 · stage 1 · stands for 1,024."""
    ranks = simulated_part(run).get("ranks")
    return [_lane(one) for one in ranks[:4096]] if isinstance(ranks, list) else []


def _lane(one: Any) -> str:
    if not isinstance(one, dict):
        return ""
    numbers = {key: one[key] for key in ("device", "tp", "cp", "dp", "pp", "stands_for")
               if type(one.get(key)) is int and 0 <= one[key] < 2**31}
    words = [f"device {numbers['device']:,}"] if "device" in numbers else []
    words += [f"{'stage' if axis == 'pp' else axis} {numbers[axis]:,}" for axis in ("pp", "dp", "cp", "tp")
              if axis in numbers]
    words += [f"stands for {numbers['stands_for']:,}"] if numbers.get("stands_for", 1) > 1 else []
    return " · ".join(words)
