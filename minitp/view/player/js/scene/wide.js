// The wide picture: a lane per rank, one below the other, columns from left to right, the gate through all lanes.

function* widePicture(svg, kit, spec, layout, o) {
  const { gate: place, gap, width, bottom } = layout, isFan = spec.gate.kind === "fan", { gutter } = kit.level;
  const lanes = lanesInto(groupInto(svg), kit, layout), heads = groupInto(svg), under = groupInto(svg);
  const headings = headingPlaces(spec, layout);
  for (const { column, x, w } of headings) headingInto(heads, kit, column, { x, w });
  const gateHead = gateHeadingInto(heads, kit, spec, { x: place.x, y: 0, w: place.w + gap - 10 });
  yield null;
  const blocks = yield* blocksInto(svg, kit, layout, spec);
  const area = { x: gutter, y: 24, w: width - gutter - 32, h: bottom - 24 };
  const flights = flightsInto(groupInto(svg), kit, blocks.leaves, area);
  const gate = isFan ? fanOf(under, kit, spec, layout, blocks.leaves)
    : gateInto(svg, kit, gatePlaces(kit, layout, spec), spec, o.index);
  yield null;
  const feeds = feedsInto(svg, kit, spec, layout);
  const beside = layout.backward ? place.x + place.w + 16 : 16;              // of the gate's foot
  const below = belowInto(svg, kit, spec, o, { x: beside, y: bottom + 12,
    w: layout.backward ? width - beside - 16 : (isFan ? width : place.x) - 32,
    full: layout.backward ? width - beside - 16 : width - 32, least: isFan ? 0 : FOOT_HIGH });
  const from = spec.columns.at(-1).lanes.map(firstPlace)
    .map((at) => (layout.backward ? { ...at, w: place.w - 16 } : at)), to = spec.result.lanes.map(firstPlace);
  const areas = [...wideAreas(headings, layout, isFan ? 0 : FOOT_HIGH + 4), ...below.areas];
  return { height: below.bottom + GRID, areas,
    frame(moment, lit, pinned) {
      const shown = rankOf(lit);
      lanes.frame(moment, shown);
      for (const node of [heads, under]) put(node, "opacity", between(moment.cut, 0.5, 1));
      blocks.frame(moment, lit, pinned);
      flights.frame(moment);
      gate.frame(moment, from, to, shown);
      gateHead.frame(moment);
      feeds.frame(moment);
      below.frame(moment, lit);
    } };
}

/** The rank that a thing belongs to; -1 where it is the same on all. */
const rankOf = (what) =>
  (Number.isInteger(what?.rank) && what.kind !== "out" && what.kind !== "tokens" ? what.rank : -1);

/** What a tour card may point to in the lanes: [{focus, x, y, w, h}]. foot: how far the gate reaches below them. */
function wideAreas(headings, { bottom, gate }, foot) {
  const y = 4, h = bottom - y + 2;
  const columns = headings.map(({ column, x, w }) => ({ focus: column.focus, x: x - 8, y, w: Math.max(w, 40) + 8, h }));
  return [...columns, { focus: "gate", x: gate.x - 8, y, w: gate.w + 16, h: h + foot }];
}

/** Each column's heading with the room that it has: [{column, x, w}]. */
function headingPlaces(spec, { columns, gate, result, feeds, width }) {
  const starts = [...columns, gate, result, feeds].filter(Boolean).map(({ x }) => x).sort((a, b) => a - b);
  const place = (column, { x }) => ({ column, x, w: (starts.find((other) => other > x) ?? width) - x - 10 });
  return [...spec.columns.map((column, i) => place(column, columns[i])), place(spec.result, result)];
}

/** The blocks of all columns, lane by lane, and the arrows between them: {leaves, frame(moment, lit, pinned)}. */
function* blocksInto(parent, kit, layout, spec) {
  const leaves = [], fading = [], columns = [...spec.columns, spec.result], places = [...layout.columns, layout.result];
  const groups = [];
  for (const [rank, { y, h }] of layout.lanes.entries()) {
    const group = groupInto(parent), middle = y + h / 2;
    columns.forEach(({ lanes, lead }, i) => {
      const { x } = places[i], last = lead && i > 0 ? places[i - 1].x : null, own = lanes[rank].w;
      const [from, to] = layout.backward ? [last - 6, x + own + 6] : [last + columns[i - 1]?.lanes[rank].w + 6, x - 6];
      if (last !== null) fading.push(leadInto(group, kit.look, lead, from, to, middle, rank));
      placeBlock(group, kit, lanes[rank], x, middle - lanes[rank].h / 2, leaves, fading);
    });
    groups.push(group);
    yield null;
  }
  const frame = leavesFrame(kit, spec, leaves, fading);
  return { leaves, frame(moment, lit, pinned) {
    frame(moment, lit);
    const kept = rankOf(pinned);
    groups.forEach((group, rank) => put(group, "opacity", kept >= 0 && kept !== rank ? 0.35 : 1));
  } };
}

/** Build a block at (x, y) and note its leaves; those that are not weights fade while whole matrices are shown. */
function placeBlock(parent, kit, block, x, y, leaves, fading) {
  const mine = leavesOf(block, x, y);
  block.holder = groupInto(parent, x, y);
  block.place = { x, y, w: block.w, h: block.h };
  leaves.push(...mine);
  for (const leaf of mine.filter((one) => one.block.lands)) {
    rectInto(parent, leaf.x - 1.5, leaf.y - 1.5, leaf.block.w + 3, leaf.block.h + 3,
      { rx: 3, fill: "none", stroke: kit.look.gray, "stroke-dasharray": "1 3" });
  }
  block.build(block.holder);
  fading.push(...mine.filter((leaf) => leaf.block.kind !== "matrix").map((leaf) => leaf.block.holder));
}

/** (moment, lit): every leaf as far as its rank is. */
function leavesFrame(kit, spec, leaves, fading) {
  return (moment, lit) => {
    const ats = moment.ranks.map(({ computed }) => ({ moment, lit, release: between(moment.release, 0.5, 1),
      stage: (s) => clamp01(computed * spec.stages - s) }));
    for (const { block } of leaves) block.frame(ats[block.rank ?? 0]);
    for (const node of fading) put(node, "opacity", between(moment.cut, 0.5, 1));
  };
}

/** "×" or an arrow, in the gap between two blocks. */
function leadInto(parent, look, lead, from, to, y, rank) {
  const group = groupInto(parent), hue = rankHue(rank);
  if (lead === "×") textInto(group, look, (from + to) / 2, y + 5, "×", { size: LARGE, anchor: "middle" });
  else {
    const left = to < from, end = left ? Math.min(from, to + 5) : Math.max(from, to - 5);
    const d = `M${hundredths(from)} ${y}H${hundredths(end)}`;
    svgNode(group, "path", { d, stroke: hue, "stroke-width": 2 });
    svgNode(group, "path", { d: arrowHead(hundredths(to), y, left), fill: hue });
  }
  return group;
}

/** Where the first vector of a block stands: the place that the released result flies to. */
function firstPlace(block) {
  const leaves = leavesOf(block, block.place.x, block.place.y);
  const { x, y, block: { w, h } } = leaves.find((leaf) => leaf.block.kind === "vector") ?? { ...block.place, block };
  return { x, y, w, h };
}

/** The arrows of a source, and its pieces. */
function fanOf(parent, kit, spec, layout, leaves) {
  const { x, y, w, h } = spec.source.place;
  const ends = layout.lanes.map((lane) => ({ x: layout.result.x, y: lane.y + lane.h / 2 }));
  const fan = fanInto(parent, kit, { x: x + w + 8, y: y + h / 2 }, ends);
  const pieces = piecesInto(spec, leaves, { x, y }, kit.ranks.length);
  return { frame(moment) {
    fan.frame(moment);
    pieces.frame(moment);
  } };
}

/** What the result feeds next: an arrow in each lane. */
function feedsInto(parent, kit, spec, { feeds, lanes, backward }) {
  if (!feeds) return { frame() {} };
  const { look } = kit, x = feeds.x + 12, group = groupInto(parent);
  textInto(group, look, x, 20, "feeds", { size: LARGE, bold: true });
  linesInto(group, look, x, 36, wrapText(spec.feeds, feeds.w - 16, SMALL, look.font).slice(0, 3), 14, { muted: true });
  const arrows = groupInto(group);
  for (const { y, h } of lanes) {
    svgNode(arrows, "path", { d: `M${x} ${y + h / 2}H${x + 27}`, stroke: look.gray, "stroke-width": 2 });
    svgNode(arrows, "path", { d: arrowHead(backward ? x - 4 : x + 32, y + h / 2, backward), fill: look.gray });
  }
  return { frame(moment) {
    put(group, "opacity", between(moment.cut, 0.5, 1));
    put(arrows, "opacity", moment.phase < AFTER ? 0 : between(moment.feed, 0.7, 1));
  } };
}
