// Where the columns stand: side by side in one lane per rank, or (narrow) one lane that flows over several rows.

const GRID = 8, HEADINGS = 72, LANE_GAP = 8, EDGE = 4;

/** The wide layout at one level: {lanes: [{y, h}], columns: [{x, w}], gate, result, feeds, need}, `need` in px. */
function wideLayout(spec, level, width, ranks) {
  const lead = level.lead, columns = spec.columns.map((column) => widthOf(column, level));
  const result = spec.result ? widthOf(spec.result, { ...level, lead: 0 }) : 0, feedsWidth = spec.feeds ? 104 : 0;
  const fan = spec.gate?.kind === "fan", gaps = columns.length - 1 + (spec.gate ? 2 : 0) || 1;
  let need = level.gutter + columns.reduce((a, b) => a + b, 0) + lead * (columns.length - 1) + EDGE + GRID;
  if (spec.gate) need += lead * 2 + level.gate + result + (spec.feeds ? feedsWidth + GRID : 0);
  const gap = lead + (fan ? 0 : Math.max(0, Math.min(level.name === "grand" ? 160 : 40, (width - need) / gaps)));
  const gateWidth = fan ? Math.max(level.gate, Math.min(720, width - need)) : level.gate;
  let x = level.gutter;
  const placed = columns.map((w) => {
    const at = { x, w };
    x += w + gap;
    return at;
  });
  const gate = spec.gate ? { x, w: gateWidth } : null;
  if (gate) x += gateWidth + gap;
  const end = spec.result ? { x, w: result } : null;
  if (end) x += result + GRID;
  const feeds = spec.feeds ? { x, w: width - x - EDGE } : null;
  const tallest = Math.max(...ranks.map((rank) => Math.max(0, ...spec.columns.map((c) => c.lanes[rank].h),
    spec.result ? spec.result.lanes[rank].h : 0)));
  const laneHeight = level.bare ? 26 : Math.max(level.outlines ? 56 : 72, Math.ceil((tallest + 16) / GRID) * GRID);
  const lanes = ranks.map((rank) => ({ y: HEADINGS + rank * (laneHeight + (level.bare ? 4 : LANE_GAP)),
    h: laneHeight }));
  return { level, lanes, columns: placed, gate, result: end, feeds, gap, need, width, bottom: lanes.at(-1).y
    + laneHeight,
    laneWidth: width - 2 * EDGE };
}

/** A column is as wide as its widest block, and with the gap behind it wide enough for its symbol. */
function widthOf(column, level) {
  const symbol = textWidth(column.short && level.name === "least" ? column.short : column.symbol, LARGE, level.font,
    true) + 10
    - level.lead;
  return Math.max(32, symbol, ...column.lanes.map((block) => block.w));
}

/** The spec at the roomiest level whose columns fit in `width`, with its layout: {kit, spec, layout}. */
function fitScene(make, model, look, width) {
  const ranks = Array.from({ length: model.ranks }, (_, rank) => rank);
  if (width < NARROW) {
    const level = { ...narrowLevel(width), font: look.font };
    return { ...make(level), layout: { level, width } };
  }
  let chosen = null;
  for (const base of LEVELS) {
    const level = { ...levelFor(base, model.ranks), font: look.font };
    const made = make(level);
    if (level.bare) made.spec.columns = made.spec.columns.slice(-1);
    chosen = { ...made, layout: wideLayout(made.spec, level, width, ranks) };
    if (chosen.layout.need <= width) break;
  }
  return chosen;
}
