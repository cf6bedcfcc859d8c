// Scatter and broadcast: one rank holds the whole, cuts or copies it, and it flies to the others. And all else.

/** A source and its arrows. The pieces that lie in the lanes at the end are the ones that lay in the source. */
function sourceScene(kit) {
  const { sync, ranks } = kit, root = clamp(sync.root, 0, ranks.length - 1), scatter = sync.op === "scatter";
  const upright = sync.site.startsWith("embedding") || sync.shape.length < 2;       // a table as stored, else Wᵀ
  const shape = shapeWords(upright ? sync.shape : [...sync.shape].reverse());
  const pieces = scatterPieces(kit, upright, scatter), source = sourceBlock(kit, pieces, root, scatter);
  return {
    stages: 1, root, pieces, source,
    columns: [{ symbol: siteWords(sync.site) || "the data", focus: "source", shape,
      state: `on root: rank ${root} alone holds it`,
      lanes: ranks.map((rank) => (rank === root ? source : emptyBlock(kit, rank, "nothing yet", 0, 96))) }],
    gate: { kind: "fan", word: scatter ? "cuts and hands out" : "hands out copies" },
    result: { symbol: scatter ? "own part" : "own copy", focus: "result", shape: scatter ? "a part each" : shape,
      state: scatter ? "shard: on every rank its part" : "whole: same on every rank",
      lanes: pieces.map((piece) => stackOf([piece])) },
    inset: [], feeds: "",
    says: scatter ? `Rank ${root} read the whole matrix, cuts it and hands every rank its own part.`
      : `Rank ${root} hands every rank a copy: it is small, or every rank needs all of it.`,
  };
}

/** The site of what is loaded, short enough for a heading: the layer stands above the picture. */
const siteWords = (site) => site.replace(/\.weight$/, "").replace(/^layers\.\d+\./, "").replace(/[._]/g, " ");

/** The block that each rank holds afterwards: a matrix, a vector, or an outline where no values were kept. */
function scatterPieces(kit, upright, scatter) {
  const { sync, ranks, level } = kit, state = scatter ? "shard" : "whole";
  const arrays = ranks.map((rank) => kit.slot("out", rank)).map((slot) => slot && (upright ? slot
    : { ...transposed(slot), shape: [...(slot.shape ?? [])].reverse() }));
  const most = (side) => Math.max(1, ...arrays.map((array) => array?.[side] ?? 0));
  const wide = most("cols"), tall = most("rows");
  const byColumns = /1/.test(sync.after) === upright, along = scatter ? ranks.length : 1;
  const fit = (cols, rows) => Math.min(level.cell, (level.tall - 8) / rows, 280 / cols), cell = fit(wide, tall);
  const shrink = Math.min(1, (byColumns ? fit(wide * along, tall) : fit(wide, tall * along)) / cell);
  return ranks.map((rank) => {
    const array = arrays[rank];
    if (!array && scatter && arrays.some(Boolean)) return nothingBlock(kit, rank, 0);
    const size = array ? { w: array.cols * cell, h: array.rows * (tall === 1 ? 16 : cell) } : { w: 56, h: 24 };
    return matrixBlock(kit, { ...size, array, rank, state, stage: 0, key: `load${sync.index}|${rank}|${upright}`,
      largest: kit.largest("out"), words: array ? "" : scatter ? "part" : "copy", sweeps: false, lands: true, shrink,
      byColumns, what: { kind: "shard", rank, name: sync.site, symbol: sync.site, state, shape: array?.shape } });
  });
}

/** The whole, put together from the ranks' parts where they come from; each piece notes where it `lies` in it. */
function sourceBlock(kit, pieces, root, scatter) {
  const real = pieces.filter((piece) => piece.kind === "matrix"), { byColumns = true, shrink = 1 } = real[0] ?? {};
  let w = 0, h = 0;
  for (const piece of pieces) {
    piece.lies = scatter ? (byColumns ? [w, 0] : [0, h]) : [0, 0];
    if (piece.kind !== "matrix") continue;
    w = scatter && byColumns ? w + piece.w * shrink : Math.max(w, piece.w * shrink);
    h = scatter && !byColumns ? h + piece.h * shrink : Math.max(h, piece.h * shrink);
  }
  return {
    w: Math.max(48, w), h: Math.max(8, h), kind: "source", rank: root,
    build(parent) {
      const outline = { rx: 4, fill: kit.look.paper, stroke: rankHue(root), "stroke-width": 2 };
      rectInto(parent, -4, -4, w + 8, h + 8, outline);
      for (const piece of scatter ? real : real.slice(0, 1)) piece.ghost(parent, ...piece.lies);
    },
    frame() {},
  };
}

const GATES = { all_gather: "concat", gather: "concat", all_reduce: "sum", reduce: "sum", reduce_scatter: "cut" };

/** Whatever else: what goes in, the op by its name, what comes out. It claims no more than the trace says. */
function genericScene(kit) {
  const { sync, ranks } = kit, stateOf = (text) => /shard|partial/.exec(text)?.[0] ?? "whole";
  const before = stateOf(sync.before), after = stateOf(sync.after), there = (rank) => sync.times[rank].present;
  const receives = (rank) => there(rank) && (sync.after !== "on root" || rank === sync.root)
    && (sync.op !== "send" || rank !== sync.root);
  const data = (slot, rank, o) => (kit.slot(slot, rank) ? kit.share(slot, rank, o)
    : wordsBlock(kit, { text: sync.payload ? "its data" : "no data", rank, width: 88, height: 24, muted: true, ...o }));
  return {
    stages: 1,
    columns: [{ symbol: "goes in", focus: "partial", shape: shapeWords(sync.shape), state: sync.before,
      lanes: ranks.map((rank) => (there(rank) ? data("in", rank, { state: before, stage: 0, kind: "term" })
        : emptyBlock(kit, rank, absentWords(sync, rank), 0, 112))) }],
    gate: { kind: GATES[sync.op] ?? "none", symbol: "y", word: opKind(sync.op), states: { before, after },
      to: ranks.filter(receives) },
    result: { symbol: "comes out", focus: "result", shape: "", state: sync.after,
      lanes: ranks.map((rank) => stackOf([receives(rank) ? data("out", rank, { state: after, when: (at) => at.release })
        : emptyBlock(kit, rank, "gets nothing", 0, 96)])) },
    inset: [], feeds: feedsWords(kit),
    says: `${opName(sync.op)}: ${sync.reason}. ${sync.plane === "data" ? "" : "It carries no activations. "}`
      + "What happens inside is not recorded, and not drawn.",
  };
}
