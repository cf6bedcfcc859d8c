// What several scenes have in common: x at the left, the partial before a sum, and what comes after the gate.

const tokensOf = (kit) => (kit.sync.shape.length > 1 ? kit.sync.shape.at(-2) : 1);

function xColumn(kit, o = {}) {
  const { ranks, config } = kit, state = o.state ?? "whole", tokens = o.tokens ?? tokensOf(kit), shown = kit.slot("x",
    0)?.rows ?? tokens;
  return { id: "x", symbol: o.symbol ?? "x",
    shape: o.shape ?? `${tokens} × ${config.hidden}${shown < tokens ? ", last row" : ""}`,
    state: o.words ?? "whole: after the norm", focus: "x",
    lanes: ranks.map((rank) => kit.vec(o.slot ?? "x", rank, { state, stage: 0, symbol: o.symbol ?? "x" })) };
}

/** The sizes of the ranks' shares of a matrix along `axis` of the stored array, in words: 16, or 14 or 13. */
function shareSizes(kit, wanted, axis) {
  const sizes = kit.ranks.map((rank) => {
    const part = partOf(kit.model, wanted[0].name, wanted[0].part, rank);
    return part && part.at[axis][1] - part.at[axis][0];
  }).filter((size) => Number.isInteger(size));
  const different = [...new Set(sizes)];
  return different.length > 3 ? `${Math.min(...different)}–${Math.max(...different)}` : different.join(" or ")
    || "its part";
}

/** What a rank that owns nothing of a layer has to show. */
const nothingBlock = (kit, rank, stage) =>
  wordsBlock(kit, { text: "owns none", state: "empty", rank, stage, width: 80, height: 24, muted: true });

/** The last column before a sum: what each rank offers, and is not the answer yet. */
function partialColumn(kit, symbol, stage, o = {}) {
  const { sync, ranks } = kit;
  return { id: "partial", symbol: `${symbol} partial`, lead: "→", shape: shapeWords(sync.shape), focus: "partial",
    state: kit.says("partial: not the answer yet"), ...o,
    lanes: ranks.map((rank) => kit.vec("in", rank, { state: "partial", stage, symbol: `partial ${symbol}`,
      kind: "term" })) };
}

/** The last column before pieces are laid side by side: each rank's is final, and only a part. */
function shardColumn(kit, symbol, stage, o = {}) {
  const { sync, ranks } = kit, shapes = ranks.map((rank) => sync.slot("in", rank)?.shape).filter(Boolean);
  return { id: "shard", symbol: `${symbol} shard`, lead: "→", focus: "partial",
    shape: shapes.length ? shapeWords(shapes[0]) : "", state: kit.says("shard: final, only a part"), ...o,
    lanes: ranks.map((rank) => kit.share("in", rank, { state: "shard", stage, symbol, kind: "term" })) };
}

/** After a sum: y on every rank, the residual added, and what it feeds. */
function sumEnd(kit, symbol) {
  const { sync, ranks, level } = kit, broken = Boolean(sync.broken), state = broken ? "partial" : "whole";
  const streams = ["attention", "mlp", "block"].includes(sync.part) && !level.bare;
  const after = (from, to) => (at) => (at.moment.phase < AFTER ? 0 : between(at.moment.feed, from, to));
  const out = (rank) => kit.vec("out", rank, { state, when: (at) => at.release, symbol, kind: "out" });
  const rows = (rank) => [
    streams ? labelled(kit, symbol, out(rank), 32) : out(rank),
    streams && labelled(kit, "+ x", kit.vec("residual", rank, { state: "whole", when: after(0, 0.4),
      symbol: "the stream before" }), 32),
    streams && labelled(kit, "= x′", kit.vec("next", rank, { state, when: after(0.4, 0.8),
      symbol: "the stream after" }), 32),
  ].slice(0, level.outlines ? 1 : 3);
  return {
    gate: { kind: "sum", slot: "in", symbol, word: "adds" },
    result: { id: "result", symbol: streams && !level.outlines ? `${symbol}, then the residual` : symbol,
      short: symbol, focus: "result",
      shape: shapeWords(sync.shape), state: broken ? "its own partial, taken for the whole"
        : "whole: same on every rank",
      lanes: ranks.map((rank) => stackOf(rows(rank), 6)) },
    feeds: feedsWords(kit),
  };
}

/** After an all-gather: the whole on every rank, or what stands `instead(rank)`; `extra(rank)` stands below it. */
function concatEnd(kit, symbol, o = {}) {
  const { sync, ranks } = kit;
  return {
    gate: { kind: "concat", slot: "in", symbol, word: "lays side by side" },
    result: { id: "result", symbol, focus: "result", shape: shapeWords(sync.shape), state: "whole: same on every rank",
      lanes: ranks.map((rank) => stackOf([o.instead?.(rank) ?? kit.vec("out", rank, { state: "whole",
        when: (at) => at.release, symbol,
        kind: "out", owners: true }), o.extra?.(rank)], 6)) },
    feeds: feedsWords(kit),
  };
}

/** What the result feeds next. */
function feedsWords(kit) {
  const { sync, config } = kit, last = sync.layer >= config.layers - 1;
  if (sync.part === "embedding") return `norm → ${config.parallel_block ? "block" : "attention of layer"} 0`;
  if (sync.part === "attention") return `norm → MLP of layer ${sync.layer}`;
  if (sync.part === "mlp" || sync.part === "block") {
    return last ? "norm → head" : `norm → ${sync.part === "block" ? "block" : "attention of layer"} ${sync.layer + 1}`;
  }
  return "";
}

/** The text of a token id, made visible; the id where its text isn't known. */
function tokenWords(kit, id) {
  const text = kit.model.pieces?.[String(id)];
  return typeof text === "string" ? `“${shortened(visible(text), 14)}”` : `id ${id}`;
}
