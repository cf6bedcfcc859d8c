// What scenes are made with: blocks of this sync's arrays and weights, at a size that fits, in the theme's colors.

/**
 * Sizes in px. vec: width of a vector; row, rows: height of a row alone, of one among several; cell, tall, wide: of a
 * matrix's cell, and of a matrix at most; lead: gap for an arrow; gate, gutter: widths; label: of a vector's name.
 */
const SIZES = ["name", "vec", "row", "rows", "cell", "tall", "wide", "lead", "gate", "gutter", "label"];
const LEVELS = [
  ["grand", 224, 18, 14, 8, 112, 224, 40, 144, 136, 36],
  ["wide", 160, 16, 11, 6, 112, 144, 30, 120, 136, 36],
  ["roomy", 128, 16, 11, 6, 112, 144, 30, 112, 136, 36],
  ["middle", 104, 14, 10, 5, 96, 112, 24, 104, 128, 36],
  ["small", 88, 14, 10, 4, 96, 96, 20, 92, 120, 34],
  ["tight", 64, 12, 10, 3, 96, 80, 16, 84, 120, 32],
  ["least", 48, 12, 8, 2.5, 80, 56, 14, 76, 118, 30],
].map((row) => Object.fromEntries(row.map((value, i) => [SIZES[i], value])));
const OUTLINE_LANES = 5, BARE_LANES = 9;   // from so many ranks on: outlines only; lanes and gate only

/** The level with what follows from the number of ranks: more lanes, less in each. */
function levelFor(level, ranks) {
  if (ranks >= BARE_LANES) return { ...level, outlines: true, bare: true, gutter: 184, tall: 16, row: 10, rows: 4 };
  if (ranks >= OUTLINE_LANES) return { ...level, outlines: true, tall: 40, row: 10, rows: 5, cell: 2 };
  return level;
}

/** What the scenes of one sync draw with. `know(node, what, box)` tells the pointer what a node is. */
function sceneKit(model, sync, look, level, know) {
  const ranks = Array.from({ length: model.ranks }, (_, rank) => rank);
  const kit = { model, sync, look, level, know, ranks, config: model.run.model ?? {},
    alone: ranks.length === 1 && !(sync.among > 1) };

  /** The state of a column in words; with one rank alone everything is whole. */
  kit.says = (state) => (kit.alone ? "whole: one rank alone" : state);

  /** A rank's array, or the one that is the same on all. */
  kit.slot = (slot, rank) => sync.slot(slot, rank) ?? sync.slot(slot, -1);

  /** The shape of the first rank that has this slot. */
  kit.slotShape = (slot) => ranks.map((rank) => sync.slot(slot, rank)?.shape).find(Boolean);

  /** The largest magnitude of a slot over all ranks: one scale, so that hues compare. */
  kit.largest = (slot) => Math.max(0, ...[...ranks, -1].map((rank) => sync.slot(slot, rank)?.max ?? 0));

  /** Whether a rank has this slot: false where others have it and it has not, null where that isn't known. */
  kit.owns = (slot, rank) => {
    if (kit.slot(slot, rank)) return true;
    return ranks.some((r) => sync.slot(slot, r)) && !sync.missing.includes(rank) ? false : null;
  };

  /** How many query heads a rank holds, from its slice of W q; null where that isn't known. */
  kit.headCount = (rank) => {
    const part = partOf(model, `layers.${sync.layer}.attention.qkv.weight`, 0, rank);
    return part ? (part.at[0][1] - part.at[0][0]) / kit.config.head_size : null;
  };

  /** A vector of a slot. o: state, stage or when, width, symbol, kind (term, out). */
  kit.vec = (slot, rank, o) => {
    const array = kit.slot(slot, rank), state = kit.alone ? "whole" : o.state, { kind = "vector", symbol = slot } = o;
    const what = { kind, rank, slot, symbol, state, axis: array?.axis, shape: array?.shape ?? sync.shape };
    const base = { array, rank, key: `${slot}${rank}`, largest: kit.largest(slot), width: level.vec };
    return vectorBlock(kit, { ...base, ...o, what, state });
  };

  /** A vector whose cells are at most `most` px wide: a shard is as wide as it is long. */
  kit.share = (slot, rank, o, most = 6) => {
    const cols = kit.slot(slot, rank)?.cols;
    return kit.vec(slot, rank, { width: cols ? Math.min(level.vec, cols * most) : level.vec / 2, ...o });
  };

  /** An array with a row per head; those of one head size are equally wide. */
  kit.perHead = (slot, rank, o, most = 8) => {
    const room = Math.min(level.vec, 96), there = kit.slot(slot, rank)?.cols, alike = ["q", "k", "v", "heads"];
    const slots = alike.includes(slot) ? alike : [slot];
    const cols = Math.max(...slots.map((name) => kit.slot(name, rank)?.cols ?? 0));
    return kit.vec(slot, rank, { width: there ? Math.min(room, cols * most) : room / 2, rowHeight: level.rows, ...o });
  };

  kit.weights = (wanted, stage, o) => weightBlocks(kit, wanted, stage, o);
  return kit;
}

/**
 * The shards of some logical matrices, as Wᵀ, one list per rank: [[block…]…]. wanted: [{name: physical, part, label}].
 * All have one cell size; `beside`: they share the width; `named`: without numbers they say what they are. A rank that
 * owns nothing has an empty frame that says so.
 */
function weightBlocks(kit, wanted, stage, o = {}) {
  const { beside = false, upright = false, sweeps = true, named = true, marks } = o;
  const { level } = kit, room = level.wide / (beside ? wanted.length : 1);
  const found = wanted.map((one) => kit.ranks.map((rank) => partOf(kit.model, one.name, one.part, rank, upright)));
  const sides = found.flat().map((part) => part?.sides).filter((side) => side?.rows && side.cols);
  const rows = Math.max(1, ...sides.map((side) => side.rows)), cols = Math.max(1, ...sides.map((side) => side.cols));
  const fit = Math.min(level.cell, level.tall / rows), high = fit > 1 ? Math.floor(2 * fit) / 2 : fit;
  const wide = Math.min(Math.max(high, Math.min(level.cell, 40 / cols)), room / cols);
  const unknown = { w: level.outlines ? 48 : Math.min(64, room), h: Math.min(level.tall, 64) };
  return kit.ranks.map((rank) => wanted.map(({ name, label }, i) => {
    const part = found[i][rank], side = part?.sides;
    const size = side ? { w: side.cols * wide, h: side.rows * high } : unknown;
    if (part?.empty) return emptyBlock(kit, rank, "owns none", stage, 72);
    return matrixBlock(kit, {
      ...size, array: part?.array, rank, stage, state: kit.alone || part?.cut === "whole" ? "whole" : "shard",
      key: `${name}|${part?.name}|${rank}`, largest: Math.max(0, ...found[i].map((other) => other?.array?.max ?? 0)),
      words: part?.array || level.outlines || !named ? "" : label, marks: marks?.(rank, part), sweeps,
      whole: part && { name: part.name, label, shape: part.shape, at: part.at, upright },
      what: part && { kind: "shard", rank, name: part.name, symbol: label, axis: axisWords(part, upright),
        state: "shard", shape: sidesOf(part, upright) },
    });
  }));
}

/**
 * One logical part of a rank's physical array, as Wᵀ (`upright`: as it is stored): {array, sides, name, shape, at,
 * cut}, array null where no numbers were kept, {empty} where the rank owns nothing of it, or null where it isn't known.
 */
function partOf(model, name, index, rank, upright = false) {
  const weight = model.weight(name, rank);
  if (!weight) return null;
  const sizes = weight.parts.map((part) => part.at[0][1] - part.at[0][0]);
  const part = weight.parts[index], all = sizes.reduce((a, b) => a + b, 0);
  if (!part) return null;
  const found = { name: part.name, shape: part.shape, at: part.at, cut: weight.cut };
  if (part.at.some(([low, high]) => high <= low)) return { ...found, empty: true };
  const before = sizes.slice(0, index).reduce((a, b) => a + b, 0);
  const from = Math.round(weight.rows * before / all), to = Math.round(weight.rows * (before + sizes[index]) / all);
  const own = rowsOf(weight, from, to), sides = upright ? own : transposed(own);
  return { ...found, sides, array: weight.at ? sides : null };
}

const sidesOf = (part, upright) => {
  const sides = part.at.map(([low, high]) => high - low);
  return upright ? sides : sides.reverse();
};

/** Which slice of the whole a part is, in words: columns 0–15 of 64. Of Wᵀ stored rows are columns. */
function axisWords(part, upright = false) {
  for (const [axis, word] of upright ? [[1, "columns"], [0, "rows"]] : [[0, "columns"], [1, "rows"]]) {
    const [low, high] = part.at[axis];
    if (high - low !== part.shape[axis]) return `${word} ${low}–${high - 1} of ${part.shape[axis]}`;
  }
  return "all of it";
}

const shapeWords = (shape) => (shape && shape.length ? shape.join(" × ") : "");

/** A number with as many decimals as `decimals`, and a true minus sign. */
const numberWords = (value, decimals) => {
  if (value === 0) return "0";
  const text = Math.abs(value).toFixed(decimals);
  return (value < 0 && Number(text) !== 0 ? "−" : "") + text;
};

/** Decimals that show the largest of `values` with three digits. */
function decimalsFor(values) {
  const largest = Math.max(0, ...values.map((v) => Math.abs(v)));
  return largest > 0 ? Math.min(6, Math.max(0, 2 - Math.floor(Math.log10(largest)))) : 2;
}
