// The MLP: W gate and W up cut by columns, the activation on final entries, W down by rows, one sum.

function mlpScene(kit) {
  const { sync, config, ranks, level } = kit, site = `layers.${sync.layer}.mlp`, tokens = sync.shape.at(-2) ?? 1;
  const up = config.gated ? `${site}.gate_up.weight` : `${site}.up.weight`;
  const first = config.gated ? [{ name: up, part: 0, label: "W gate" }, { name: up, part: 1, label: "W up" }]
    : [{ name: up, part: 0, label: "W up" }];
  const cut = kit.weights(first, 1, { beside: true });
  const down = kit.weights([{ name: `${site}.down.weight`, part: 0, label: "W down" }], 3);
  const slots = config.gated ? ["gate", "up", "h"] : ["up", "h"];
  const stages = { gate: 1, up: 1, h: 2 };
  const shares = ranks.map((rank) => (kit.slot("h", rank)?.shape ?? []).at(-1));
  const act = activationWord(config.activation);
  return {
    stages: 4,
    columns: [
      { id: "x", symbol: "x", shape: `${tokens} × ${config.hidden}`, state: "whole", focus: "x",
        lanes: ranks.map((rank) => kit.vec("x", rank, { state: "whole", stage: 0, symbol: "x" })) },
      { id: "up", symbol: config.gated ? "W gate, W up" : "W up", lead: "×", focus: "weights",
        shape: `${config.hidden} × ${sizesWords(shares)}`, state: "shard: own columns",
        lanes: cut.map((blocks) => stackOf(blocks, 8, true)) },
      { id: "h", symbol: config.gated ? `h = ${act}(gate) · up` : `h = ${act}(up)`, lead: "→", focus: "h",
        shape: `${tokens} × ${sizesWords(shares)}`, state: "shard: final entries",
        lanes: ranks.map((rank) => stackOf(slots.map((slot) => labelled(kit, slot,
          kit.share(slot, rank, { state: "shard", stage: stages[slot] }), level.label)), level.outlines ? 2 : 6)) },
      { id: "down", symbol: "W down", lead: "×", focus: "weights", shape: `${sizesWords(shares)} × ${config.hidden}`,
        state: "shard: own rows", lanes: down.map((blocks) => stackOf(blocks)) },
      partialColumn(kit, "y", 3),
    ],
    ...sumEnd(kit, "y"),
    inset: [...wholesOf(kit, first, "concatenates"),
      ...wholesOf(kit, [{ name: `${site}.down.weight`, part: 0, label: "W down" }], "sums")],
  };
}

/** 16, or 14 or 13 where shards are uneven. */
function sizesWords(sizes) {
  const different = [...new Set(sizes.filter((size) => size !== undefined))];
  return different.length ? different.join(" or ") : "?";
}

const activationWord = (name) => (name === "silu" ? "silu" : name ? "gelu" : "act");

/** The last column before a sum: what each rank offers, and is not the answer yet. */
function partialColumn(kit, symbol, stage) {
  const { sync, ranks } = kit;
  return { id: "partial", symbol: `${symbol} partial`, lead: "→", shape: shapeWords(sync.shape), focus: "partial",
    state: "partial: not the answer yet",
    lanes: ranks.map((rank) => kit.vec("in", rank, { state: "partial", stage, symbol: `${symbol} of rank ${rank}`,
      what: { kind: "term", rank, slot: "in", symbol: `partial ${symbol}`, state: "partial", shape: sync.shape } })) };
}

/** What comes after a sum or a concat: y on every rank, the residual added, and what it feeds. */
function sumEnd(kit, symbol) {
  const { sync, ranks, level } = kit, broken = Boolean(sync.broken);
  const next = sync.slot("next", -1), residual = sync.slot("residual", -1), stream = next || residual;
  const after = (from, to) => (at) => (at.moment.phase < AFTER ? 0 : between(at.moment.feed, from, to));
  const rows = (rank) => [
    labelled(kit, symbol, kit.vec("out", rank, { state: broken ? "partial" : "whole", when: (at) => at.release(rank),
      symbol, what: { kind: "out", rank, slot: "out", symbol, state: broken ? "partial" : "whole", shape: sync.shape } }), 30),
    stream && !level.bare && labelled(kit, "+ x", kit.vec("residual", rank, { state: "whole", when: after(0, 0.4),
      symbol: "the stream before" }), 30),
    stream && !level.bare && labelled(kit, "= x′", kit.vec("next", rank, { state: broken ? "partial" : "whole",
      when: after(0.4, 0.8), symbol: "the stream after" }), 30),
  ];
  return {
    gate: { kind: "sum", slot: "in", symbol, word: "sum" },
    result: { id: "result", symbol: stream ? `${symbol}, + x (residual)` : symbol, shape: shapeWords(sync.shape),
      state: broken ? "its own partial, taken for the whole" : "whole: same on every rank", focus: "result",
      lanes: ranks.map((rank) => stackOf(rows(rank), level.outlines ? 2 : 6)) },
    feeds: feedsWords(kit),
  };
}

/** What the result feeds next. */
function feedsWords(kit) {
  const { sync, config } = kit, last = sync.layer >= config.layers - 1;
  if (sync.part === "embedding") return "norm → attention of layer 0";
  if (sync.part === "attention") return `norm → MLP of layer ${sync.layer}`;
  if (sync.part === "mlp" || sync.part === "block") {
    return last ? "norm → head" : `norm → ${sync.part === "block" ? "block" : "attention of layer"} ${sync.layer + 1}`;
  }
  return "";
}
