"""One sync point in full: what moved, when each rank came and went, and the line of code that asked for it."""
from typing import Any

import numpy as np

from minitp.trace.wording import dimensions, duration, size
from minitp.view.reading import PlayReader
from minitp.view.text import op_name, place


def detail(reader: PlayReader, k: int) -> dict[str, Any]:
    """{title, facts: rows, ranks: rows, caller, code} of sync `k`; times in words, since its pass began."""
    sync = reader.sync(k)
    broken = " (skipped on purpose: every rank took its own part for the whole)" if sync.broken else ""
    facts = {
        "collective": op_name(sync.op) + broken, "site": sync.site, "why": sync.reason,
        "state": f"{sync.before} → {sync.after}", "shape of the whole": dimensions(sync.shape), "dtype": sync.dtype,
        "payload": f"{size(sync.payload)} (the whole array)",
    }
    facts |= ({"failed": sync.failed} if sync.failed else {}) | (
        {} if sync.never else {"came last": f"rank {sync.last}"})
    facts |= {"root": f"rank {sync.root}"} if sync.root >= 0 else {}
    ranks = [{"rank": r, "computes": duration(sync.computing[r]), "arrives at": duration(int(sync.enter[r])),
              "waits": duration(sync.waits[r]), "moves": duration(sync.moving[r]),
              "leaves at": duration(int(sync.leave[r]))} for r in np.flatnonzero(sync.present).tolist()]
    return {"title": place(reader, k), "facts": [{"what": what, "value": value} for what, value in facts.items()],
            "ranks": ranks, "caller": sync.caller, "code": sync.code}
