"""The tour's cards of a training run: the loss on cut logits, the way back through the cuts, what a step sums once."""
import re
from functools import cached_property

from minitp.trace.wording import count, plain, size
from minitp.view.cards import AFTER, ARRIVING, COMBINE, COMPUTE, Card, Guide, card
from minitp.view.reading import PlayReader, SyncView
from minitp.view.text import equation, number, op_name
from minitp.view.training_arrays import BACKWARD


class TrainingGuide(Guide):
    """Where the tour of a training run stops: in the first step of the play of which a backward pass is there."""

    def __init__(self, reader: PlayReader):
        super().__init__(reader)
        passes = [reader.pass_words(i)[:2] for i in range(len(reader.play["passes"]["first"]))]
        step = next(step for phase, step in passes if phase == "backward")
        of_step = [i for i, (_, at) in enumerate(passes) if at == step]
        self.forward, self.backward, self.optimizer = (
            next((i for i in of_step if passes[i][0] == phase), None) for phase in ("forward", "backward", "optimizer"))
        self.micro_batches = sum(passes[i][0] == "backward" for i in of_step)
        self.at = self.backward or 0

    def of(self, pass_index: int | None) -> list[SyncView]:
        return [] if pass_index is None else [self.reader.sync(k) for k in self._numbers(pass_index)]

    def part(self, *parts: str) -> SyncView | None:
        """The first sync of one of these parts in the step's backward pass, or else in its others."""
        syncs = [*self.of(self.backward), *self.of(self.forward), *self.of(self.optimizer)]
        return next((sync for sync in syncs if sync.part in parts), None)

    def at_site(self, site: str) -> SyncView | None:
        return next((sync for sync in self.of(self.forward) if sync.site == site), None)

    @cached_property
    def first(self) -> SyncView | None:
        """f of the first MLP that the backward pass comes to, or of a block."""
        return self.part("d_mlp", "d_block")

    @cached_property
    def timed(self) -> list[SyncView]:
        return [sync for i in (self.forward, self.backward, self.optimizer) for sync in self.of(i)]

    @cached_property
    def unseen(self) -> SyncView | None:
        """The last layer that the backward pass comes to: no card before shows who came last there."""
        return next(iter([sync for sync in self.of(self.backward) if sync.part in BACKWARD][::-1]), None)


def three_parts(guide: TrainingGuide) -> Card | None:
    """The step as a whole."""
    numbers = {name: guide.sync_points(i) for name, i in (("forward", guide.forward), ("backward", guide.backward),
                                                          ("optimizer", guide.optimizer)) if i is not None}
    syncs = guide.of(guide.forward) or guide.of(guide.backward)
    if len(numbers) < 3:
        return None
    times = f"; its {guide.micro_batches} micro-batches each take both" if guide.micro_batches > 1 else ""
    return card("A step is three passes", f"Forward, with the loss: {count(numbers['forward'], 'sync point')}. "
                f"Backward, from the last layer to the first: {numbers['backward']}{times}. Then once a step the "
                f"optimizer: {numbers['optimizer']}. Weights, gradients and the optimizer's state never move.",
                syncs[0].index, COMPUTE, focus="tokens", cut=None)


def three_numbers(guide: TrainingGuide) -> Card | None:
    """What the loss sends, against the logits that it doesn't gather."""
    found = [sync for sync in guide.of(guide.forward) if sync.part == "loss"]
    vocab = guide.model["vocab"]
    if len(found) < 3 or not vocab or guide.ranks == 1:
        return None
    sent, logits = sum(sync.payload for sync in found), found[0].payload * vocab
    return card("The loss, without gathering the logits", "Each rank has the logits of its own words. The loss of a "
                "position is log Z − (z − m): the largest logit m, the sum Z of exp(logit − m) and the target's z − m are one "
                f"number a position each. Three small collectives, {size(sent)} of payload; all logits would be "
                f"{size(logits)}.", found[0].index, COMBINE, focus="gate")


def whose_target(guide: TrainingGuide) -> Card | None:
    sync = guide.at_site("loss.target")
    slots = {} if sync is None else guide.reader.slots(sync.index)
    owner, token = slots.get(("owner", -1)), slots.get(("token", -1))
    if sync is None or owner is None or token is None or guide.ranks == 1:
        return None
    if not 0 <= owner.numbers[0, 0] < guide.ranks:
        return None
    rank, word = int(owner.numbers[0, 0]), guide.reader.play["pieces"].get(str(int(token.numbers[0, 0])), "")
    asked = f"“{plain(word, 20)}”" if word.strip() else f"token {int(token.numbers[0, 0])}"
    loss = slots.get(("loss", -1))
    value = f" The loss of this position is {number(loss.numbers[0, 0])}." if loss is not None else ""
    offered = guide.rank_choices(rank, [*range(guide.ranks)])
    return card("One rank has the target's logit", f"The text goes on with {asked}. One rank holds that word's logit, "
                "the others add 0, as with the rows of the embedding.", sync.index, COMPUTE, t=0, focus="tokens",
                question=f"Which rank has the logit of {asked}?", choices=[f"rank {r}" for r in offered],
                answer=offered.index(rank), reveal=f"Rank {rank}.{value}")


def where_it_begins(guide: TrainingGuide) -> Card | None:
    sync = guide.part("d_head")
    if sync is None or sync.before != "partial":
        return None
    return card("The backward begins in shards", "softmax − target is the gradient of the logits, and each rank has "
                "its own words' part at once. Through its own rows of the head it becomes a partial sum of dx: the "
                "picture now runs from right to left.", sync.index, COMPUTE, focus="x")


def free_behind_rows(guide: TrainingGuide) -> Card | None:
    """g."""
    sync = guide.first
    if sync is None or guide.ranks == 1:
        return None
    return card("g: behind the row cut nothing is sent", "Forward, the row cut ended in an all-reduce: y is a sum "
                "with a term from every rank. So dy is the gradient of each term, and every rank has it, whole. "
                "Turned round, own rows are own columns: dy · Wᵀ gives each rank its own entries of dh, all final.",
                sync.index, COMPUTE, focus="x")


def sum_before_columns(guide: TrainingGuide) -> Card | None:
    """f."""
    sync = guide.first
    if sync is None or guide.ranks == 1 or sync.broken:
        return None
    return card("f: the sum is in front of the column cut", "Forward, x went into every rank's columns and nothing was "
                "sent. Backward, x owes something to each of them: each rank's dx is one term. The "
                f"{op_name(sync.op)} adds them (payload {size(sync.payload)}).{equation(guide.reader, sync)}",
                sync.index, AFTER, focus="equation")


def cannot_wait(guide: TrainingGuide) -> Card | None:
    """The backward is linear, so it isn't a bend that forbids to put the sum off."""
    sync = guide.first
    if sync is None or guide.ranks == 1:
        return None
    below = "attention" if sync.part == "d_mlp" else "block"
    return card("Linear, and yet it can't wait", "Going back, nothing bends: norm and slope only multiply the "
                "gradient, and a sum could pass them. But the next thing that it meets is a shard. Each rank has its "
                f"own term and its own part of the {below} below; term 0 times part 1 would be nobody's. So the sum "
                "comes first.",
                sync.index, ARRIVING, focus="partial")


def two_not_five(guide: TrainingGuide) -> Card | None:
    sync, model = guide.part("d_attention"), guide.model
    layer = [s for s in guide.of(guide.backward) if sync is not None and s.layer == sync.layer and s.part in BACKWARD]
    if sync is None or guide.ranks == 1 or not model["gated"]:
        return None
    answer = len(layer)
    choices = sorted({1, 2, 5, 7, answer})
    return card("Two, not five", "q, k and v are three column cuts, gate and up are two more, and each of the five "
                "gives a partial dx.", sync.index, COMPUTE, focus="weights", question="How many sums does a layer need "
                "going back?", choices=[str(n) for n in choices], answer=choices.index(answer),
                reveal=f"{answer}. Cuts that share an input share its f: their partial gradients are added on each "
                "rank first, and partial + partial costs nothing. One sum for q, k and v, one for gate and up.")


def weights_stay(guide: TrainingGuide) -> Card | None:
    sync = guide.first
    if sync is None or guide.ranks == 1:
        return None
    return card("dW stays at home", "A weight's gradient is dyᵀ x, summed over all positions. Of the one a rank has "
                "the part that its shard needs, of the other the whole: so the gradient of a shard is a shard, on the "
                "rank that holds it. Nothing is sent, whatever the size of the "
                "model.", sync.index, AFTER, focus="weights")


def copies(guide: TrainingGuide) -> Card | None:
    sync = guide.part("copies")
    if sync is None:
        return None
    return card("Copies owe each other a sum", f"{guide.model['kv_heads']} kv heads on {guide.ranks} ranks: some are "
                "held twice, and each holder saw its own query heads. Their gradients are terms of a sum, paid once a "
                f"step for all layers in one buffer of {size(sync.payload)}; after it the copies stay equal for ever.",
                sync.index, COMBINE, focus="gate")


def one_number(guide: TrainingGuide) -> Card | None:
    sync = guide.part("norm")
    if sync is None:
        return None
    total = guide.reader.slots(sync.index).get(("sum", -1))
    value = "" if total is None else f" Here it is {number(max(total.numbers[0, 0], 0.0) ** 0.5)}."
    return card("One number, then each on its own", "To clip by the length of the whole gradient, every rank adds "
                f"up its own squares and one number is summed ({size(sync.payload)}).{value} Then m, v and the weights "
                "of each shard are updated where they lie: AdamW works entry by entry, so it sends nothing.",
                sync.index, AFTER, focus="gate")


def all_beads(guide: TrainingGuide) -> Card | None:
    """How many sync points a step has."""
    of_step = [i for i in (guide.forward, guide.backward) if i is not None]
    layers = guide.model["layers"]
    recomputed = any(re.search(r"\.(o|down)$", sync.site) for sync in guide.of(guide.backward))
    if len(of_step) < 2 or not layers or guide.ranks == 1:
        return None
    there, back = (guide.sync_points(i) for i in of_step)
    each = 1 if guide.model["parallel_block"] else 2
    choices = sorted({each * layers, back, 2 * back, there + 1})
    why = (f"{each} per layer and one at the head" if back == each * layers + 1 else
           f"{each} per layer going back, the forward's again, as only the blocks' inputs were kept, and the head's"
           if recomputed else f"{each} per layer and {back - each * layers} at the head")
    return card("Count the beads of the backward", f"The forward pass had {there}, the loss's three among them. The "
                f"model has L = {layers} layers.", guide.of(guide.backward)[-1].index, AFTER, focus="beads", cut=None,
                question="How many has the backward pass?", choices=[f"{n:,}" for n in choices],
                answer=choices.index(back), reveal=f"{back:,}: {why}. More tokens or a larger batch make the payload "
                "larger, not the syncs more.")
