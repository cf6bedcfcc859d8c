"""The tour's cards about the other parts of the model and the whole run: heads, both ends, beads, time, a break."""
from minitp.trace.wording import duration, plain, share
from minitp.view.cards import AFTER, ARRIVING, COMBINE, COMPUTE, Card, Guide, card
from minitp.view.text import number, op_name


def heads(guide: Guide) -> Card | None:
    sync, entries = guide.find("attention", "block"), guide.cut_of("attention.qkv")
    size_of_head, total = guide.model["head_size"], guide.model["heads"]
    if sync is None or not entries or not size_of_head:
        return None
    held = [(entry["rank"], *entry["parts"][0]["at"][0]) for entry in entries]
    words = "; ".join(f"rank {r}: {_heads(start // size_of_head, stop // size_of_head)}" for r, start, stop in held[:8])
    shared = f" {guide.model['kv_heads']} kv heads are shared by {total} query heads." \
        if guide.model["kv_heads"] < total else ""
    return card("Heads don't need each other", f"A head attends with its own q, k and v, so whole heads are dealt out "
                f"({words}).{shared} Wo is cut by rows: each rank projects its own heads, and the sum of those "
                "projections is the projection of all heads.", sync.index, COMPUTE, focus="weights")


def _heads(start: int, stop: int) -> str:
    return "no head" if stop <= start else f"head {start}" if stop == start + 1 else f"heads {start}–{stop - 1}"


def embedding(guide: Guide) -> Card | None:
    sync = guide.find("embedding")
    if sync is None or guide.ranks == 1:
        return None
    read = guide.reader.pass_words(guide.at)[3]
    word = f"“{plain(read, 30)}”" if read.strip() else "the token"
    owner = guide.reader.slots(sync.index).get(("owner", -1))
    if sync.before.startswith("shard"):
        return card("The table, cut by columns", f"Each rank holds some columns of every word's row. For {word} each "
                    f"looks up its part, and the {op_name(sync.op)} lays the parts side by side: a column cut ends in "
                    "concatenation, a row cut in a sum.", sync.index, COMBINE, focus="gate")
    text = (f"The table is cut by words: one rank holds the row of {word}, the others put in zeros. Adding "
            "zeros changes nothing, so the sum is the row.")
    if owner is None or not 0 <= owner.numbers[0, -1] < guide.ranks:
        return card("One rank answers, the others add zeros", text, sync.index, COMBINE, focus="gate")
    rank = int(owner.numbers[0, -1])
    offered = guide.rank_choices(rank, [*range(guide.ranks)])
    return card("One rank answers, the others add zeros", text, sync.index, COMPUTE, t=0, focus="weights",
                question=f"Which rank holds the row of {word}?", choices=[f"rank {r}" for r in offered],
                answer=offered.index(rank), reveal=f"Rank {rank}.")


def logits(guide: Guide) -> Card | None:
    sync = guide.find("head") or guide.find("sample")
    if sync is None:
        return None
    slots, pieces = guide.reader.slots(sync.index), guide.reader.play["pieces"]
    best = {r: drawn.numbers[0] for (name, r), drawn in slots.items() if name == "best" and drawn.numbers.size}
    offers = "; ".join(f"rank {r}: {_piece(pieces, pair[0])} {number(pair[1])}" for r, pair in list(best.items())[:8])
    made = guide.reader.pass_words(guide.at)[2]
    how = ("Each rank scores its own part of the vocabulary; the shards are laid side by side, and every rank picks "
           "the same word." if sync.before.startswith("shard") and sync.part == "head" else
           "Each rank offers its best few words, and every rank picks the same one of them." if sync.part == "sample"
           else "The ranks' partial logits are added, and every rank picks the same word.")
    return card("From logits to a word", how + (f" Best offers: {offers}." if offers else "")
                + (f" Chosen: “{plain(made, 40)}”." if made.strip() else ""), sync.index, AFTER, focus="gate")


def _piece(pieces: dict[str, str], number: float) -> str:
    text = pieces.get(str(int(number)), "")
    return f"“{plain(text, 20)}”" if text.strip() else f"token {int(number)}"


def beads(guide: Guide) -> Card | None:
    layers, number = guide.model["layers"], guide.sync_points(guide.at)
    if not layers or not number or guide.find("attention", "block") is None:
        return None
    each, times = (1, "L") if guide.model["parallel_block"] else (2, "2L")
    said = {each * layers + extra: f" = {times} + {extra}" for extra in (1, 2)}.get(number, "")
    choices = sorted({layers, 2 * layers, 2 * layers + 2, number})
    prompt = len(guide.reader.play["prompt"])
    same = (guide.prefill not in (None, guide.at) and prompt > 1 and guide.sync_points(guide.prefill or 0) == number)
    return card("Count the beads", "Each bead is a sync point, and they come one after the other. This model has "
                f"L = {layers} layers.", guide.here[-1].index, AFTER, focus="beads", cut=None,
                question="How many sync points does one forward pass have?", choices=[f"{n:,}" for n in choices],
                answer=choices.index(number),
                reveal=f"{number:,}{said}. " + (
                    f"The prompt of {prompt:,} tokens took the same {number:,} in all: more tokens make the payload "
                    "larger, not the syncs more." if same else "It is the same for a prompt of a hundred tokens.")
                + (" One of them was skipped on purpose here." if any(s.broken for s in guide.here) else ""))


def where_time_went(guide: Guide) -> Card | None:
    syncs = [s for s in guide.timed if s.present.any()]
    parts = {name: sum(sum(getattr(s, name).values()) for s in syncs) for name in ("computing", "waits", "moving")}
    whole = sum(parts.values())
    if not whole:
        return None
    longest = max(syncs, key=lambda s: max(s.waits.values()))
    rank, ns = max(longest.waits.items(), key=lambda pair: pair[1])
    crowd = (" More ranks than cores shared this machine, so waits show the scheduler." if
             guide.reader.run["crowded"] else "")
    waited = (f" The longest wait: rank {rank}, {duration(ns)} at {plain(longest.site)}." if ns else "")
    return card("Where did the time go?", f"The measured clock{guide.timed_of}, all ranks together: "
                f"{share(parts['computing'], whole)} computing, {share(parts['waits'], whole)} waiting, "
                f"{share(parts['moving'], whole)} moving."
                f"{waited}{crowd}", longest.index, ARRIVING, focus="scrubber", clock="measured", cut=None)


def break_it(guide: Guide) -> Card | None:
    reader = guide.reader
    text = "".join(reader.pass_words(i)[2] for i in range(len(reader.play["passes"]["first"])))
    broken = reader.first_broken()
    if broken is not None:
        sync = reader.sync(broken)
        return card("What a missing sum does", f"At {plain(sync.site)} the {op_name(sync.op)} was skipped: every rank "
                    "took its own partial sum for the whole, and the ranks went on with different numbers. The text "
                    f"became “{plain(text, 60)}”.", broken, COMBINE, focus="gate")
    whole = guide.mlp or guide.find("attention")
    if whole is None or guide.ranks == 1:
        return None
    return card("Break it", f"Run it again with --break {plain(whole.site)}: that one sum is skipped in every pass, "
                "each rank takes its partial sum for the whole, and other words come out. Every bead is needed.",
                whole.index, COMBINE, focus="gate")
