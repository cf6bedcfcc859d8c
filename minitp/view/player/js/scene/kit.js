// What scenes are made with: blocks of this sync's arrays and weights, at a size that fits, in the theme's colours.

const LEVELS = [
  { name: "grand", vec: 224, row: 18, rows: 14, cell: 8, tall: 112, wide: 224, lead: 40, gate: 144, gutter: 136,
    label: 36 },
  { name: "wide", vec: 160, row: 16, rows: 11, cell: 6, tall: 112, wide: 144, lead: 30, gate: 120, gutter: 136,
    label: 36 },
  { name: "roomy", vec: 128, row: 16, rows: 11, cell: 6, tall: 112, wide: 144, lead: 30, gate: 112, gutter: 136,
    label: 36 },
  { name: "middle", vec: 104, row: 14, rows: 10, cell: 5, tall: 96, wide: 112, lead: 24, gate: 104, gutter: 128,
    label: 36 },
  { name: "small", vec: 88, row: 14, rows: 10, cell: 4, tall: 96, wide: 96, lead: 20, gate: 92, gutter: 120,
    label: 34 },
  { name: "tight", vec: 64, row: 12, rows: 10, cell: 3, tall: 96, wide: 80, lead: 16, gate: 84, gutter: 120,
    label: 32 },
  { name: "least", vec: 48, row: 12, rows: 8, cell: 2.5, tall: 80, wide: 56, lead: 14, gate: 76, gutter: 118,
    label: 30 },
];
const OUTLINE_LANES = 5, BARE_LANES = 9;   // from so many ranks on: outlines only; lanes and gate only

/** The level with what follows from the number of ranks: more lanes, less in each. */
function levelFor(level, ranks) {
  if (ranks >= BARE_LANES) return { ...level, outlines: true, bare: true, gutter: 184, tall: 16, row: 10, rows: 4 };
  if (ranks >= OUTLINE_LANES) return { ...level, outlines: true, tall: 40, row: 10, rows: 5, cell: 2 };
  return level;
}

function sceneKit(model, sync, look, level, know) {
  const ranks = Array.from({ length: model.ranks }, (_, rank) => rank);
  const kit = { model, sync, look, level, know, ranks, config: model.run.model ?? {}, alone: ranks.length === 1 };
  /** The state of a column in words; with one rank alone everything is whole. */
  kit.says = (state) => (kit.alone ? "whole: one rank alone" : state);
  /** The largest magnitude of a slot over all ranks: one scale, so that hues compare. */
  kit.largest = (slot) => Math.max(0, ...ranks.concat(-1).map((rank) => sync.slot(slot, rank)?.max ?? 0));
  kit.slot = (slot, rank) => sync.slot(slot, rank) ?? sync.slot(slot, -1);

  /** A vector of a slot. o: state, stage or when, width, words (where there are no values), symbol. */
  kit.vec = (slot, rank, asked) => {
    const array = kit.slot(slot, rank), o = kit.alone ? { ...asked, state: "whole" } : asked;
    return vectorBlock(kit, {
      array, rank, key: `${slot}${rank}`, largest: kit.largest(slot), width: level.vec,
      what: { kind: o.kind ?? "vector", rank, slot, symbol: o.symbol ?? slot, state: o.state, axis: array?.axis,
        shape: array?.shape ?? sync.shape },
      ...o,
    });
  };

  /** A vector whose cells are at most `most` px wide, as wide as a rank's share of `level.vec` asks. */
  kit.share = (slot, rank, o, most = 6) => {
    const array = kit.slot(slot, rank);
    return kit.vec(slot, rank, { width: array?.cols ? Math.min(level.vec, array.cols * most) : level.vec / 2, ...o });
  };

  /** An array with a row per head: rows of cells up to `most` px wide, few or many positions in the same room. */
  kit.perHead = (slot, rank, o, most = 8) => {
    const array = kit.slot(slot, rank), room = Math.min(level.vec, 96), alike = ["q", "k", "v",
      "heads"];      // one head size
    const cols = Math.max(...(alike.includes(slot) ? alike : [slot]).map((name) => kit.slot(name, rank)?.cols ?? 0));
    return kit.vec(slot, rank, { width: array?.cols ? Math.min(room, cols * most) : room / 2, rowHeight: level.rows,
      ...o });
  };

  /** Whether a rank has this slot: false where others have it and it has not, null where nobody has. */
  kit.owns = (slot, rank) => (kit.slot(slot, rank) ? true : ranks.some((r) => sync.slot(slot, r)) ? false : null);

  /** How many query heads a rank holds, from its slice of W q; null where that isn't known. */
  kit.headCount = (rank) => {
    const part = partOf(model, `layers.${Math.max(0, sync.layer)}.attention.qkv.weight`, 0, rank);
    return part ? (part.at[0][1] - part.at[0][0]) / kit.config.head_size : null;
  };

  /**
   * The shards of some logical matrices, as Wᵀ, one list per rank: [[block…]…]. `wanted`: [{name: physical, part}].
   * All have one cell size. A rank that owns nothing of it has an empty frame that says so.
   */
  kit.weights = (wanted, stage, o = {}) => {
    const found = wanted.map((one) => ranks.map((rank) => partOf(model, one.name, one.part, rank, o.upright)));
    const known = found.flat().filter((part) => part?.sides?.rows && part.sides.cols);
    const most = (pick) => Math.max(1, ...known.map((part) => pick(part.sides))),
      room = (o.wide ?? level.wide) / (o.beside ? wanted.length : 1);
    const fit = Math.min(level.cell, level.tall / most((sides) => sides.rows)), cell = fit > 1
      ? Math.floor(2 * fit) / 2 : fit;
    const cols = most((sides) => sides.cols), narrow = Math.min(Math.max(cell, Math.min(level.cell, 40 / cols)),
      room / cols);
    return ranks.map((rank) => wanted.map((one, i) => {
      const part = found[i][rank];
      if (part && part.empty) {
        return wordsBlock(kit, { text: "owns none", state: "empty", rank, stage, width: 72, height: 24, muted: true });
      }
      const array = part?.array, sizes = part?.sides ? { w: part.sides.cols * narrow, h: part.sides.rows * cell }
        : { w: level.outlines ? 48 : Math.min(64, room), h: Math.min(level.tall, 64) };
      return matrixBlock(kit, {
        ...sizes, array, rank, stage, state: kit.alone || part?.cut === "whole" ? "whole" : "shard",
          key: `${one.name}|${part?.name}|${rank}`,
        largest: Math.max(0, ...found[i].map((p) => p?.array?.max ?? 0)), words: array || level.outlines ? ""
          : one.label,
        marks: o.marks?.(rank, part), sweeps: o.sweeps,
        whole: part && { name: part.name, label: one.label, shape: part.shape, at: part.at, column: i,
          upright: Boolean(o.upright) },
        what: part && { kind: "shard", rank, name: part.name, symbol: one.label, axis: axisWords(part, o.upright),
          state: "shard", shape: sidesOf(part, o.upright) },
      });
    }));
  };
  return kit;
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
  const own = rowsOf(weight, from, to), array = upright ? own : transposed(own);
  return weight.at ? { ...found, array, sides: array } : { ...found, array: null, sides: array };
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
