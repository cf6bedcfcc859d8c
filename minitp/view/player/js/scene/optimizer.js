// Once a step: what copies of a head owe each other, the norm of all gradients; then every rank updates its own shards.

const UPDATED = ["first moment", "second moment", "change"], UPDATED_SYMBOLS = ["m", "v", "ΔW"];
const SHOWN_GRADIENTS = ["q", "k", "v", "o", "gate", "up", "down"];

/** A kv head that several ranks hold: each has the gradient of its own query heads alone. */
function copiesScene(kit) {
  const own = (rank) => gradientStrip(kit, rank, ["k", "v"]) ?? wordsBlock(kit, { text: "dW k, dW v", rank, stage: 0,
    width: 88, height: 24 });
  const sum = sumEnd(kit, "dW");
  return {
    stages: 2,
    columns: [{ symbol: "dW k, dW v", focus: "weights", shape: "of layer 0, …",
      state: kit.says("partial: own query heads"),
      lanes: kit.ranks.map((rank) => (kit.owns("dW k", rank) === false ? nothingBlock(kit, rank, 0) : own(rank))) },
    partialColumn(kit, "dW", 1, { symbol: "all kv heads", short: "heads",
      state: kit.says("partial: zeros where it holds none") })],
    ...sum, result: { ...sum.result, symbol: "dW k, dW v" }, feeds: "norm, then the optimizer", inset: [],
  };
}

/** The squares of all gradients, each counted once; then clipping and the update of own shards, which send nothing. */
function normScene(kit) {
  const value = sumValue(kit.sync, 0), norm = value === null ? null : Math.sqrt(Math.max(value, 0));
  const words = norm === null ? "norm = √Σ" : `norm = √Σ = ${numberWords(norm, decimalsFor([norm]))}`;
  const strip = (rank) => gradientStrip(kit, rank, SHOWN_GRADIENTS) ?? wordsBlock(kit, { text: "its gradients", rank,
    stage: 0, width: 96, height: 24 });
  const end = numberEnd(kit, { kind: "sum", symbol: "Σ g²", whole: true, word: "adds" }, "Σ g²", "", words);
  const update = (rank) => (kit.level.bare || kit.level.outlines ? null : updateBlock(kit, rank));
  const lanes = end.result.lanes.map((block, rank) => stackOf([block, update(rank)], 6));
  return {
    stages: 2,
    columns: [{ symbol: "own gradients", short: "g", focus: "weights", shape: "layer 0's shown",
      state: kit.says("shard: each counted once"), lanes: kit.ranks.map(strip) },
    numberColumn(kit, "own Σ g²", "partial: not the answer yet")],
    ...end, result: { ...end.result, symbol: "norm, then update", short: "norm", lanes }, inset: [],
  };
}

/** The gradients of some matrices side by side, small: null where none were kept. */
function gradientStrip(kit, rank, names) {
  const there = names.filter((name) => kit.slot(`dW ${name}`, rank)), { outlines, vec } = kit.level;
  if (!there.length || outlines) return null;
  const w = Math.max(8, Math.min(32, (vec + 36) / there.length - 4));
  const block = (name) => gradientBlock(kit, name, rank, { w, h: 40, kind: "matrix" }, { when: () => 1 });
  const words = (text) => wordsBlock(kit, { text, rank, width: w, bare: true, muted: true, when: () => 1 });
  const named = (name) => stackOf([block(name), w < 30 ? null : words(name)], 2);
  return stackOf(there.map(named), 4, true);
}

/** m, v and the change of one matrix: this rank's shard, from its own gradient. */
function updateBlock(kit, rank) {
  const arrays = UPDATED.map((name) => kit.slot(name, rank)), after = (i) => (at) =>
    (at.moment.phase < AFTER ? 0 : between(at.moment.feed, 0.3 + 0.2 * i, 0.6 + 0.2 * i));
  const size = { w: 34, h: 34, kind: "matrix" };
  const block = (name, i) => gradientBlock(kit, name, rank, size, { array: arrays[i], largest: kit.largest(name),
    key: `${name}|${rank}|${kit.sync.pass}`, words: "", when: after(i),
    what: { kind: "vector", rank, slot: name, symbol: `${UPDATED_SYMBOLS[i]} of W down, layer 0`, state: "shard",
      shape: arrays[i]?.shape } });
  const one = (name, i) => labelled(kit, UPDATED_SYMBOLS[i], block(name, i), i === 2 ? 26 : 16);
  const words = wordsBlock(kit, { text: "own shard: nothing sent", rank, width: 152, bare: true, muted: true,
    anchor: "start", when: after(0) });
  return stackOf([stackOf(UPDATED.map(one), 6, true), words], 4);
}
