// Where the columns stand: side by side in one lane per rank, or (narrow) one lane that flows over several rows.

const NARROW = 900, GRID = 8, HEADINGS = 64, LANE_GAP = 8, EDGE = 4;

/** The wide layout at the roomiest level that fits: {level, lanes: [{y, h}], columns: [{x, w}], gate, result, feeds}. */
function wideLayout(spec, level, width, ranks) {
  const lead = level.lead, columns = spec.columns.map((column) => widthOf(column));
  const result = spec.result ? widthOf(spec.result) : 0;
  const feedsWidth = spec.feeds ? Math.min(112, textWidth("attention of", SMALL, level.font) + 20) : 0;
  let need = level.gutter + columns.reduce((a, b) => a + b, 0) + lead * (columns.length - 1) + EDGE + GRID;
  if (spec.gate) need += lead * 2 + level.gate;
  if (spec.result) need += result;
  if (spec.feeds) need += feedsWidth + GRID;
  const gaps = columns.length - 1 + (spec.gate ? 2 : 0) || 1;
  const slack = Math.max(0, Math.min(28, (width - need) / gaps));
  const gap = lead + slack;
  let x = level.gutter + Math.max(0, Math.min(24, (width - need - slack * gaps) / 2));
  const placed = columns.map((w) => {
    const at = { x, w };
    x += w + gap;
    return at;
  });
  const gate = spec.gate ? { x, w: level.gate } : null;
  if (gate) x += level.gate + gap;
  const end = spec.result ? { x, w: result } : null;
  if (end) x += result + GRID;
  const feeds = spec.feeds ? { x, w: width - x - EDGE } : null;
  const tallest = Math.max(...ranks.map((rank) => Math.max(0, ...spec.columns.map((c) => c.lanes[rank].h),
    spec.result ? spec.result.lanes[rank].h : 0)));
  const laneHeight = level.bare ? 26 : Math.max(level.outlines ? 56 : 72, Math.ceil((tallest + 16) / GRID) * GRID);
  const lanes = ranks.map((rank) => ({ y: HEADINGS + rank * (laneHeight + (level.bare ? 4 : LANE_GAP)), h: laneHeight }));
  return { wide: true, level, lanes, columns: placed, gate, result: end, feeds, gap, need, width,
    bottom: lanes.at(-1).y + laneHeight, laneWidth: width - 2 * EDGE };
}

/** A column is as wide as its widest block, and wide enough for the first word of its heading. */
function widthOf(column) {
  return Math.max(24, ...column.lanes.map((block) => block.w));
}

/** The spec at the roomiest level whose columns fit in `width`, with its layout. */
function fitScene(make, model, look, width) {
  const ranks = Array.from({ length: model.ranks }, (_, rank) => rank);
  let chosen = null;
  for (const base of LEVELS) {
    const level = { ...levelFor(base, model.ranks), font: look.font };
    const made = make(level);
    chosen = { ...made, layout: wideLayout(made.spec, level, width, ranks) };
    if (chosen.layout.need <= width) break;
  }
  return chosen;
}
