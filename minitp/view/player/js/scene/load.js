// Scatter and broadcast: one rank holds the whole, cuts or copies it, and it flies to the others. And all else.

/** A source and its arrows. The pieces that lie in the lanes at the end are the ones that lay in the source. */
function sourceScene(kit) {
  const { sync, ranks, level } = kit, root = Math.min(ranks.length - 1, Math.max(0, sync.root)),
    scatter = sync.op === "scatter";
  const upright = sync.site.startsWith("embedding") || sync.shape.length < 2;
  const pieces = piecesOf(kit, upright, scatter), source = sourceBlock(kit, pieces, root, scatter);
  const name = sync.site.replace(/\.weight$/, "");
  return {
    stages: 1, rooted: true, root, pieces: level.outlines ? null : pieces, source,
    columns: [{ id: "source", symbol: name || "the data", focus: "source", shape: shapeWords(upright ? sync.shape
      : [...sync.shape].reverse()),
      state: `on root: rank ${root} alone holds it`, lanes: ranks.map((rank) => (rank === root ? source
        : wordsBlock(kit, { text: "nothing yet", state: "empty", rank, width: 96, height: 24, muted: true }))) }],
    gate: { kind: "fan", word: scatter ? "cuts and hands out" : "hands out copies", symbol: name, from: [root],
      to: ranks },
    result: { id: "result", symbol: scatter ? "own part" : "own copy", focus: "result",
      shape: scatter ? "a part each" : shapeWords(sync.shape), state: scatter ? "shard: on every rank its part"
        : "whole: same on every rank",
      lanes: ranks.map((rank) => stackOf([pieces[rank]])) },
    inset: [], feeds: "",
    says: scatter ? `Rank ${root} read the whole matrix, cuts it and hands every rank its own part: then nobody needs the whole.`
      : `Rank ${root} hands every rank a copy: it is small, or every rank needs all of it.`,
  };
}

/** The block that each rank holds afterwards: a matrix, a vector, or an outline where no values were kept. */
function piecesOf(kit, upright, scatter) {
  const { sync, ranks, level } = kit, state = scatter ? "shard" : "whole";
  const arrays = ranks.map((rank) => {
    const slot = kit.slot("out", rank);
    return slot && (upright ? slot : { ...transposed(slot), shape: [...(slot.shape ?? [])].reverse() });
  });
  const most = (pick) => Math.max(1, ...arrays.filter(Boolean).map(pick)), wide = most((a) => a.cols),
    tall = most((a) => a.rows);
  const byColumns = /1/.test(sync.after) === upright;               // shard(1) of a table as stored, shard(0) of Wᵀ
  const fit = (across, down) => Math.min(level.cell, (level.tall - 8) / down, 280 / across), along = scatter
    ? ranks.length : 1;
  const cell = fit(wide, tall), low = Math.max(cell, tall === 1 ? 16 : 0);
  const shrink = Math.min(1, (byColumns ? fit(wide * along, tall) : fit(wide, tall * along)) / cell);
  return ranks.map((rank) => {
    const array = arrays[rank];
    if (!array && scatter && sync.slot("out", ranks.find((r) => sync.slot("out", r)) ?? -1)) return nothingBlock(kit,
      rank, 0);
    const size = array ? { w: array.cols * cell, h: array.rows * low } : { w: 56, h: 24 };
    return matrixBlock(kit, { ...size, array, rank, stage: 0, state, key: `load${sync.index}|${rank}|${upright}`,
      lands: true, shrink,
      largest: kit.largest("out"), words: array ? "" : scatter ? "part" : "copy", sweeps: false, byColumns,
      what: { kind: "shard", rank, name: sync.site, symbol: sync.site, state, shape: array?.shape,
        axis: array?.axis } });
  });
}

/** The whole, put together from the ranks' parts where they come from. */
function sourceBlock(kit, pieces, root, scatter) {
  const real = pieces.filter((piece) => piece.kind === "matrix"), { byColumns = true, shrink = 1 } = real[0] ?? {};
  const sum = (side) => shrink * real.reduce((all, piece) => all + piece[side], 0),
    most = (side) => shrink * Math.max(0, ...real.map((piece) =>
    piece[side]));
  const w = scatter && byColumns ? sum("w") : most("w"), h = scatter && !byColumns ? sum("h") : most("h");
  let at = 0;
  for (const piece of pieces) {
    piece.lies = scatter && piece.kind === "matrix" ? (byColumns ? [at, 0] : [0, at]) : [0, 0];
    if (scatter && piece.kind === "matrix") at += shrink * (byColumns ? piece.w : piece.h);
  }
  return { w: Math.max(48, w), h: Math.max(8, h), kind: "source", rank: root,
    build(parent) {
      svgNode(parent, "rect", { x: -4, y: -4, width: w + 8, height: h + 8, rx: 4, fill: kit.look.paper,
        stroke: rankHue(root),
        "stroke-width": 2 });
      for (const piece of real.slice(0, scatter ? real.length : 1)) piece.ghost(parent, piece.lies[0], piece.lies[1]);
    }, frame() {} };
}

/** Whatever else: what goes in, the op by its name, what comes out. It claims no more than the trace says. */
function genericScene(kit) {
  const { sync, ranks } = kit, kind = { all_gather: "concat", gather: "concat", all_reduce: "sum", reduce: "sum",
    reduce_scatter: "cut" }[sync.op] ?? "none";
  const stateOf = (text) => (/shard/.test(text) ? "shard" : /partial/.test(text) ? "partial" : "whole");
  const before = stateOf(sync.before), after = stateOf(sync.after), rooted = sync.after === "on root"
    || sync.before === "on root";
  const shown = (slot, rank, state, o) => (kit.slot(slot, rank) ? kit.share(slot, rank, { state, symbol: slot, ...o })
    : wordsBlock(kit, { text: sync.payload ? "its data" : "no data", state: sync.payload ? state : "empty", rank,
      width: 88, height: 24,
      muted: true, ...o }));
  const receives = (rank) => sync.times[rank]?.present && (!rooted || sync.after !== "on root" || rank === sync.root)
    && !(/send/.test(sync.op) && rank === sync.root);
  return {
    stages: 1,
    columns: [{ id: "in", symbol: "goes in", focus: "partial", shape: shapeWords(sync.shape), state: sync.before || "",
      lanes: ranks.map((rank) => (sync.times[rank]?.present ? shown("in", rank, before, { stage: 0, kind: "term" })
        : wordsBlock(kit, { text: "takes no part", state: "empty", rank, width: 112, height: 24, muted: true }))) }],
    gate: { kind, symbol: "y", word: opKind(sync.op), states: { before, after }, to: ranks.filter(receives) },
    result: { id: "result", symbol: "comes out", focus: "result", shape: "", state: sync.after || "",
      lanes: ranks.map((rank) => stackOf([receives(rank) ? shown("out", rank, after, { when: (at) => at.release })
        : wordsBlock(kit, { text: "gets nothing", state: "empty", rank, width: 88, height: 24, muted: true })])) },
    inset: [], feeds: feedsWords(kit),
    says: `${opName(sync.op)}: ${sync.reason}. ${sync.plane === "data" ? "" : "It carries no activations. "}`
      + `What happens inside is not recorded, and not drawn.`,
  };
}
