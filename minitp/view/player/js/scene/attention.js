// Attention, cut by heads: q, k, v of own heads, scores over all positions, own heads' outputs, own rows of W o, a sum.

function attentionScene(kit) {
  const { config, ranks } = kit, names = attentionNames(kit), own = kit.says("shard: own heads");
  const qkv = kit.weights(names.qkv, 1, { beside: true }), out = kit.weights(names.o, 4);
  const positions = kit.slotShape("scores")?.at(-1);
  const inner = (make) => ranks.map((rank) =>
    (kit.owns("q", rank) === false ? nothingBlock(kit, rank, 1) : make(rank)));
  const rows = (slot, stage, symbol) => (rank) => kit.perHead(slot, rank, { state: "shard", stage, symbol });
  return {
    stages: 5,
    columns: [
      xColumn(kit),
      { symbol: "W q, W k, W v", short: "W qkv", lead: "×", focus: "weights", shape: headsWords(kit), state: own,
        lanes: qkv.map((blocks) => ownOrNone(kit, blocks, 1, true)) },
      { symbol: "q, k, v", lead: "→", focus: "q", shape: `${tokensOf(kit)} × heads × ${config.head_size}`, state: own,
        lanes: inner((rank) => headRows(kit, rank, 1)) },
      { symbol: "scores", lead: "→", focus: "scores", state: own,
        shape: positions ? `on ${counted(positions, "word")}` : "softmax(q kᵀ)",
        lanes: inner(rows("scores", 2, "attention weights")) },
      { symbol: "heads", lead: "→", focus: "heads", shape: "scores · v", state: own,
        lanes: inner(rows("heads", 3, "head outputs")) },
      { symbol: "W o", lead: "×", focus: "weights", shape: `${shareSizes(kit, names.o, 1)} × ${config.hidden}`,
        state: kit.says("shard: own rows"), lanes: out.map((blocks) => ownOrNone(kit, blocks, 4)) },
      partialColumn(kit, "y", 4),
    ],
    ...sumEnd(kit, "y"),
    inset: [...wholesOf(kit, names.qkv, "heads"), ...wholesOf(kit, names.o, "rows")],
  };
}

/** The matrices of this layer's attention: {qkv, o}, as {name: physical, part, label}. */
function attentionNames(kit) {
  const site = `layers.${kit.sync.layer}.attention`;
  return {
    qkv: ["W q", "W k", "W v"].map((label, part) => ({ name: `${site}.qkv.weight`, part, label })),
    o: [{ name: `${site}.o.weight`, part: 0, label: "W o" }],
  };
}

/** q, k, v: one row per head, below one another. */
function headRows(kit, rank, stage) {
  const slots = kit.level.outlines ? ["q"] : ["q", "k", "v"];
  const rows = (slot) => kit.perHead(slot, rank, { state: "shard", stage });
  return stackOf(slots.map((slot) => labelled(kit, slot, rows(slot), 16)), 6);
}

/** The blocks of one rank, or one frame that says that it owns none. */
function ownOrNone(kit, blocks, stage, beside = false) {
  const none = blocks.every((block) => block.kind === "words");
  return none ? nothingBlock(kit, blocks[0].rank, stage) : stackOf(blocks, 6, beside);
}

/** How many heads each rank has: 2 heads a rank, or 3, 2, 2, 2 heads. */
function headsWords(kit) {
  const counts = kit.ranks.map((rank) => kit.headCount(rank) ?? kit.sync.slot("q", rank)?.shape?.at(-2) ?? 0);
  if (counts.every((n) => !n)) return `${kit.config.heads} heads in all`;
  if (new Set(counts).size === 1) return `${counted(counts[0], "head")} a rank`;
  return counts.length <= 5 ? `${counts.join(", ")} heads` : `${Math.min(...counts)}–${Math.max(...counts)} heads`;
}

/** Attention above and MLP below in each lane; their partials are added before one sync. */
function blockScene(kit) {
  const { level, config, ranks } = kit, attention = attentionNames(kit), mlp = mlpNames(kit);
  const half = { ...level, tall: level.outlines ? level.tall / 2 : 64, cell: Math.min(level.cell, 3) };
  const small = sceneKit(kit.model, kit.sync, kit.look, half, kit.know);
  const qkv = small.weights(attention.qkv, 1, { beside: true }), out = small.weights(attention.o, 3);
  const first = small.weights(mlp.first, 1, { beside: true }), down = small.weights(mlp.down, 3);
  const pairs = (above, below) => ranks.map((rank) => stackOf([above(rank), below(rank)], 12));
  const heads = (rank) => (kit.owns("heads", rank) === false ? nothingBlock(kit, rank, 2)
    : small.perHead("heads", rank, { state: "shard", stage: 2, symbol: "head outputs" }));
  return {
    stages: 4,
    columns: [
      xColumn(kit),
      { symbol: "W qkv, W up", short: "W in", lead: "×", focus: "weights", shape: "heads, then MLP",
        state: kit.says("shard: own columns"),
        lanes: pairs((rank) => ownOrNone(kit, qkv[rank], 1, true), (rank) => stackOf(first[rank], 6, true)) },
      { symbol: "heads; h", lead: "→", focus: "h", shape: "", state: kit.says("shard: own heads, own h"),
        lanes: pairs(heads, (rank) => small.share("h", rank, { state: "shard", stage: 2 })) },
      { symbol: "W o, W down", short: "W out", lead: "×", focus: "weights", shape: `rows × ${config.hidden}`,
        state: kit.says("shard: own rows"),
        lanes: pairs((rank) => ownOrNone(kit, out[rank], 3), (rank) => stackOf(down[rank])) },
      partialColumn(kit, "y", 3, { symbol: "attention + MLP", short: "both",
        state: kit.says("partial: two partials added, no sync") }),
    ],
    ...sumEnd(kit, "y"),
    inset: [...wholesOf(kit, attention.qkv, "heads"), ...wholesOf(kit, attention.o, "rows"),
      ...wholesOf(kit, mlp.first, "columns"), ...wholesOf(kit, mlp.down, "rows")],
  };
}
