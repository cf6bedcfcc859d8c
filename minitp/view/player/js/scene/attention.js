// Attention, cut by heads: q, k, v of own heads, scores over all positions, own heads' outputs, own rows of W o, a sum.

function attentionScene(kit) {
  const { config, ranks, sync } = kit, names = attentionNames(kit), tokens = tokensOf(kit), e = config.head_size;
  const qkv = kit.weights(names.qkv, 1, { beside: true }), out = kit.weights(names.o, 4);
  const positions = Math.max(0, ...ranks.map((rank) => (sync.slot("scores", rank)?.shape ?? []).at(-1) ?? 0));
  const inner = (make) => ranks.map((rank) => (kit.owns("q", rank) === false ? nothingBlock(kit, rank, 1)
    : make(rank)));
  return {
    stages: 5,
    columns: [
      xColumn(kit),
      { id: "qkv", symbol: "W q, W k, W v", short: "W qkv", lead: "×", focus: "weights",
        state: kit.says("shard: own heads"),
        shape: headsWords(kit), lanes: qkv.map((blocks) => ownOrNone(kit, blocks, 1, true)) },
      { id: "q", symbol: "q, k, v", lead: "→", focus: "q", shape: `${tokens} × heads × ${e}`,
        state: kit.says("shard: own heads"),
        lanes: inner((rank) => headRows(kit, rank, ["q", "k", "v"], 1)) },
      { id: "scores", symbol: "scores", lead: "→", focus: "scores", state: kit.says("shard: own heads"),
        shape: positions ? `on ${counted(positions, "word")}` : "softmax(q kᵀ)",
        lanes: inner((rank) => kit.perHead("scores", rank, { state: "shard", stage: 2,
          symbol: "attention weights" })) },
      { id: "heads", symbol: "heads", lead: "→", focus: "heads", shape: "scores · v",
        state: kit.says("shard: own heads"),
        lanes: inner((rank) => kit.perHead("heads", rank, { state: "shard", stage: 3, symbol: "head outputs" })) },
      { id: "o", symbol: "W o", lead: "×", focus: "weights", shape: `${shareSizes(kit, names.o, 1)} × ${config.hidden}`,
        state: kit.says("shard: own rows"), lanes: out.map((blocks) => ownOrNone(kit, blocks, 4)) },
      partialColumn(kit, "y", 4),
    ],
    ...sumEnd(kit, "y"),
    inset: [...wholesOf(kit, names.qkv, "heads"), ...wholesOf(kit, names.o, "rows")],
  };
}

function attentionNames(kit) {
  const site = `layers.${kit.sync.layer}.attention`;
  return { qkv: ["q", "k", "v"].map((part, i) => ({ name: `${site}.qkv.weight`, part: i, label: `W ${part}` })),
    o: [{ name: `${site}.o.weight`, part: 0, label: "W o" }] };
}

/** q, k, v: one row per head, below one another. */
function headRows(kit, rank, slots, stage) {
  const shown = kit.level.outlines ? slots.slice(0, 1) : slots;
  return stackOf(shown.map((slot) => labelled(kit, slot, kit.perHead(slot, rank, { state: "shard", stage,
    symbol: slot }), 16)), 6);
}

/** The blocks of one rank, or one frame that says that it owns none. */
function ownOrNone(kit, blocks, stage, beside = false) {
  return blocks.every((block) => block.kind === "words") ? nothingBlock(kit, blocks[0].rank, stage)
    : stackOf(blocks, 6, beside);
}

/** How many heads each rank has: 2 heads a rank, or 3, 2, 2, 2 heads. */
function headsWords(kit) {
  const counts = kit.ranks.map((rank) => kit.sync.slot("q", rank)?.shape?.at(-2) ?? null);
  const axes = kit.ranks.map((rank) => kit.headCount(rank));
  const known = axes.every((n) => n !== null) ? axes : counts.map((n) => n ?? 0);
  if (known.every((n) => !n)) return `${kit.config.heads} heads in all`;
  return new Set(known).size === 1 ? `${counted(known[0], "head")} a rank`
    : known.length <= 5 ? `${known.join(", ")} heads` : `${Math.min(...known)}–${Math.max(...known)} heads`;
}

/** Attention and MLP side by side, added before one sync. */
function blockScene(kit) {
  const { config, ranks } = kit, attention = attentionNames(kit), mlp = mlpNames(kit);
  const half = { ...kit.level, tall: kit.level.outlines ? kit.level.tall / 2 : 64, cell: Math.min(kit.level.cell, 3) };
  const small = sceneKit(kit.model, kit.sync, kit.look, half, kit.know);
  const qkv = small.weights(attention.qkv, 1, { beside: true }), out = small.weights(attention.o, 3);
  const first = small.weights(mlp.first, 1, { beside: true }), down = small.weights(mlp.down, 3);
  const pair = (above, below, gap = 12) => stackOf([above, below], gap);
  return {
    stages: 4,
    columns: [
      xColumn(kit),
      { id: "up", symbol: "W qkv; W gate, up", short: "W in", lead: "×", focus: "weights",
        shape: "attention above, MLP below",
        state: kit.says("shard: own columns"),
        lanes: ranks.map((rank) => pair(ownOrNone(kit, qkv[rank], 1, true), stackOf(first[rank], 6, true))) },
      { id: "h", symbol: "heads; h", lead: "→", focus: "h", shape: "", state: kit.says("shard: own heads, own h"),
        lanes: ranks.map((rank) => pair(kit.owns("heads", rank) === false ? nothingBlock(kit, rank, 2)
          : small.perHead("heads", rank, { state: "shard", stage: 2, symbol: "head outputs" }),
        small.share("h", rank, { state: "shard", stage: 2, symbol: "h" }))) },
      { id: "down", symbol: "W o; W down", short: "W out", lead: "×", focus: "weights", shape: `… × ${config.hidden}`,
        state: kit.says("shard: own rows"),
        lanes: ranks.map((rank) => pair(ownOrNone(kit, out[rank], 3), stackOf(down[rank]))) },
      partialColumn(kit, "y", 3, { symbol: "attention + MLP", short: "both",
        state: kit.says("partial: two partials added, no sync") }),
    ],
    ...sumEnd(kit, "y"),
    inset: [...wholesOf(kit, attention.qkv, "heads"), ...wholesOf(kit, attention.o, "rows"), ...wholesOf(kit,
      mlp.first, "columns"),
      ...wholesOf(kit, mlp.down, "rows")],
  };
}
