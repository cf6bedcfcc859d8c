// Where the columns stand: side by side, at the roomiest sizes that fit, in one lane per rank.

const GRID = 8, HEADINGS = 72, LANE_GAP = 8, EDGE = 4;
const FEEDS = 104;                      // px for what the result feeds
const GAP_GROWS = { grand: 160 };            // how far a gap may grow where there is room; else 40
const FAN = 720;                        // the arrows of a source, at most

/** The wide layout at one level: {lanes: [{y, h}], columns: [{x, w}], gate, result, feeds, need}, `need` in px. */
function wideLayout(spec, level, width) {
  const { lead, gutter } = level, isFan = spec.gate.kind === "fan", widths = spec.columns.map((c) => widthOf(c, level));
  const result = widthOf(spec.result, { ...level, lead: 0 }), feedsWidth = spec.feeds ? FEEDS + GRID : 0;
  const need = gutter + widths.reduce((a, b) => a + b, 0) + lead * (widths.length + 1) + level.gate + result
    + feedsWidth + EDGE + GRID;
  const spare = Math.max(0, width - need), grow = Math.min(GAP_GROWS[level.name] ?? 40, spare / (widths.length + 1));
  const gap = lead + (isFan ? 0 : grow), gateWidth = isFan ? Math.max(level.gate, Math.min(FAN, spare)) : level.gate;
  let x = gutter;
  const placed = [...widths, gateWidth, result].map((w) => {
    const at = { x, w };
    x += w + gap;
    return at;
  });
  const end = placed.at(-1).x + result + GRID, lanes = laneHeights(spec, level);
  const made = {
    level, lanes, columns: placed.slice(0, -2), gate: placed.at(-2), result: placed.at(-1), gap, need, width,
    corridor: corridorOf(placed, isFan), feeds: spec.feeds ? { x: end, w: width - end - EDGE } : null,
    bottom: lanes.at(-1).y + lanes.at(-1).h, laneWidth: width - 2 * EDGE,
  };
  return spec.backward ? mirrored(made, gutter, (spec.feeds ? width - EDGE : end) - GRID) : made;
}

/** The same layout from right to left, between `from` and `to`: the backward pass goes the other way. */
function mirrored(layout, from, to) {
  const turn = (place) => place && { ...place, x: from + to - place.x - place.w };
  return { ...layout, columns: layout.columns.map(turn), gate: turn(layout.gate), result: turn(layout.result),
    corridor: turn(layout.corridor), feeds: turn(layout.feeds), backward: true };
}

/** Where a rank's term waits: between the last column and the gate, or all of a source's arrows. */
function corridorOf(placed, isFan) {
  const last = placed.at(-3), gate = placed.at(-2), x = last.x + last.w + 6;
  return { x, w: gate.x + (isFan ? gate.w : 0) - x };
}

/** All lanes are equally high: [{y, h}]. */
function laneHeights(spec, level) {
  const columns = [...spec.columns, spec.result], ranks = spec.result.lanes;
  const tallest = Math.max(...columns.flatMap((column) => column.lanes.map((block) => block.h)));
  const h = level.bare ? 26 : Math.max(level.outlines ? 56 : 72, Math.ceil((tallest + 16) / GRID) * GRID);
  return ranks.map((_, rank) => ({ y: HEADINGS + rank * (h + (level.bare ? 4 : LANE_GAP)), h }));
}

/** A column is as wide as its widest block, and with the gap behind it wide enough for its symbol. */
function widthOf(column, level) {
  const symbol = level.name === "least" ? column.short ?? column.symbol : column.symbol;
  const words = textWidth(symbol, LARGE, level.font, true) + 10 - level.lead;
  return Math.max(32, words, ...column.lanes.map((block) => block.w));
}

/** In steps: what `make(level)` gives at the roomiest level that fits in `width`: {kit, spec, layout}. */
function* fitScene(make, model, look, width) {
  if (width < NARROW) return { ...make({ ...narrowLevel(width), font: look.font }), layout: { width } };
  let chosen = null;
  for (const base of LEVELS) {
    const level = { ...levelFor(base, model.ranks), font: look.font }, made = make(level);
    if (level.bare) made.spec.columns = made.spec.columns.slice(-1);
    chosen = { ...made, layout: wideLayout(made.spec, level, width) };
    if (chosen.layout.need <= width) break;
    yield null;
  }
  return chosen;
}
