// What several scenes have in common: x at the left, the partial before a sum, and what comes after the gate.

const tokensOf = (kit) => (kit.sync.shape.length > 1 ? kit.sync.shape.at(-2) : 1);

/** The input. o: slot, state, shape, words (its state in words), tokens. */
function xColumn(kit, o = {}) {
  const slot = o.slot ?? "x", state = o.state ?? "whole", tokens = o.tokens ?? tokensOf(kit);
  const last = (kit.slot("x", 0)?.rows ?? tokens) < tokens ? ", last row" : "";
  return {
    symbol: "x", shape: o.shape ?? `${tokens} × ${kit.config.hidden}${last}`, state: o.words ?? "whole: after the norm",
    focus: "x", lanes: kit.ranks.map((rank) => kit.vec(slot, rank, { state, stage: 0, symbol: "x" })),
  };
}

/** The sizes of the ranks' shares of a matrix along `axis` of the stored array, in words: 16, or 14 or 13. */
function shareSizes(kit, [matrix], axis) {
  const parts = kit.ranks.map((rank) => partOf(kit.model, matrix.name, matrix.part, rank)).filter(Boolean);
  const sizes = [...new Set(parts.map((part) => part.at[axis][1] - part.at[axis][0]))];
  if (sizes.length > 3) return `${Math.min(...sizes)}–${Math.max(...sizes)}`;
  return sizes.join(" or ") || "its part";
}

/** What a rank that owns nothing of a layer has to show. */
const nothingBlock = (kit, rank, stage) => emptyBlock(kit, rank, "owns none", stage);

/** The last column before a sum: what each rank offers, and is not the answer yet. */
function partialColumn(kit, symbol, stage, o = {}) {
  const vector = (rank) => kit.vec("in", rank, { state: "partial", stage, symbol: `partial ${symbol}`, kind: "term" });
  return {
    symbol: `${symbol} partial`, lead: "→", shape: shapeWords(kit.sync.shape), focus: "partial",
    state: kit.says("partial: not the answer yet"), lanes: kit.ranks.map(vector), ...o,
    ...(kit.alone ? { symbol, short: symbol } : {}),
  };
}

/** The last column before pieces are laid side by side: each rank's is final, and only a part. */
function shardColumn(kit, symbol, stage, o = {}) {
  const vector = (rank) => kit.share("in", rank, { state: "shard", stage, symbol, kind: "term" });
  return {
    symbol: `${symbol} shard`, lead: "→", shape: shapeWords(kit.slotShape("in")), focus: "partial",
    state: kit.says("shard: final, only a part"), lanes: kit.ranks.map(vector), ...o,
    ...(kit.alone ? { symbol, short: symbol } : {}),
  };
}

/** After a sum: y on every rank, the residual added, and what it feeds. */
function sumEnd(kit, symbol) {
  const { sync, ranks, level } = kit, state = sync.broken ? "partial" : "whole";
  const streams = ["attention", "mlp", "block"].includes(sync.part) && !level.bare && !isAgain(kit.model, sync);
  const after = (from, to) => (at) => (at.moment.phase < AFTER ? 0 : between(at.moment.feed, from, to));
  const out = (rank) => kit.vec("out", rank, { state, when: (at) => at.release, symbol, kind: "out" });
  const row = (label, block) => labelled(kit, label, block, 32);
  const rows = (rank) => [
    row(symbol, out(rank)),
    row("+ x", kit.vec("residual", rank, { state: "whole", when: after(0, 0.4), symbol: "the stream before" })),
    row("= x′", kit.vec("next", rank, { state, when: after(0.4, 0.8), symbol: "the stream after" })),
  ];
  const lane = (rank) => (streams ? stackOf(rows(rank).slice(0, level.outlines ? 1 : 3), 6) : stackOf([out(rank)]));
  return {
    gate: { kind: "sum", symbol, word: "adds" },
    result: {
      symbol: streams && !level.outlines ? `${symbol}, then the residual` : symbol, short: symbol, focus: "result",
      shape: shapeWords(sync.shape), lanes: ranks.map(lane),
      state: sync.broken ? "its own partial, taken for the whole" : "whole: same on every rank",
    },
    feeds: feedsWords(kit),
  };
}

/** After an all-gather: the whole on every rank, or what stands `instead(rank)`; `extra(rank)` stands below it. */
function concatEnd(kit, symbol, { extra, instead } = {}) {
  const out = (rank) => kit.vec("out", rank, { state: "whole", when: (at) => at.release, symbol, kind: "out" });
  const lane = (rank) => stackOf([instead ? instead(rank) : out(rank), extra?.(rank)], 6);
  return {
    gate: { kind: "concat", symbol, word: "lays side by side" },
    result: { symbol, focus: "result", shape: shapeWords(kit.sync.shape), state: "whole: same on every rank",
      lanes: kit.ranks.map(lane) },
    feeds: feedsWords(kit),
  };
}

/** After a reduce-scatter: the sum, and of it each rank its own part. */
function cutEnd(kit, symbol) {
  const out = (rank) => kit.share("out", rank, { state: "shard", when: (at) => at.release, symbol, kind: "out" });
  return {
    gate: { kind: "cut", symbol, word: "adds, then cuts" },
    result: { symbol: `${symbol} shard`, focus: "result", shape: shapeWords(kit.slotShape("out")) || "its part",
      state: kit.says("shard: summed, own part"), lanes: kit.ranks.map((rank) => stackOf([out(rank)])) },
    feeds: kit.sync.part === "head" ? "exchange of the winners" : feedsWords(kit),
  };
}

/** What the result feeds next. */
function feedsWords(kit) {
  const { sync, config } = kit, { part, layer } = sync, block = config.parallel_block ? "block" : "attention of layer";
  if (!config.layers) return "";
  const below = config.parallel_block ? "block" : "MLP of layer";
  if (part === "embedding") return `norm → ${block} 0`;
  if (isAgain(kit.model, sync) && part !== "attention") return `the backward of layer ${layer}`;
  if (part === "attention") return `norm → MLP of layer ${layer}`;
  if (part === "d_mlp") return `attention of layer ${layer}`;
  if (part === "d_attention" || part === "d_block") {
    return layer > 0 ? `${below} ${layer - 1}` : "embedding: own rows, nothing sent";
  }
  if (part === "d_head") {
    return sync.before !== "partial" && sync.site === "head" ? "own columns of the table"
      : `norm → ${below} ${config.layers - 1}`;
  }
  if (part !== "mlp" && part !== "block") return "";
  return layer >= config.layers - 1 ? "norm → head" : `norm → ${block} ${layer + 1}`;
}

/** The text of a token id, made visible; the id where its text isn't known. */
function tokenWords(kit, id) {
  const text = kit.model.pieces?.[String(id)];
  return typeof text === "string" ? `“${shortened(visible(text), 14)}”` : `id ${id}`;
}
