// The wide picture: a lane per rank, one below the other, columns from left to right, the gate through all lanes.

function widePicture(svg, kit, spec, layout, o) {
  const partials = layout.columns.at(-1), fan = spec.gate?.kind === "fan";
  layout.corridor = layout.gate ? { x: partials.x + partials.w + 6, w: layout.gate.x - partials.x - partials.w - 6
    + (fan ? layout.gate.w : 0) }
    : { x: 0, w: 0 };
  const lanes = lanesInto(svgNode(svg, "g", {}), kit, layout);
  const heads = svgNode(svg, "g", {}), under = svgNode(svg, "g", {});
  headingsInto(heads, kit, headingPlaces(spec, layout));
  const gateHead = layout.gate ? gateHeading(heads, kit, spec, { ...layout.gate, w: layout.gate.w + layout.gap - 10,
    y: 0 }) : null;
  const blocks = blocksInto(svg, kit, layout, spec);
  const titles = svgNode(svg, "g", {});
  const flights = flightsInto(titles, kit, blocks.leaves, { x: layout.level.gutter, y: 24,
    w: layout.width - layout.level.gutter - 32,
    h: layout.bottom - 24 });
  const places = (column) => kit.ranks.map((rank) => firstPlace(column.lanes[rank]));
  const gate = !layout.gate ? null : fan ? fanOf(under, kit, spec, layout, blocks) : gateInto(svg, kit, gatePlaces(kit,
    layout, spec), spec,
    o.index);
  const feeds = layout.feeds ? feedsInto(svg, kit, spec, layout) : null;
  const below = belowInto(svg, kit, spec, o, { x: 16, y: layout.bottom + 12, w: (layout.gate && !fan ? layout.gate.x
    : layout.width) - 32,
    full: layout.width - 32, least: layout.gate && !fan ? FOOT_HIGH : 0 });
  const from = places(spec.columns.at(-1)), to = spec.result ? places(spec.result) : null;
  return { height: below.bottom + GRID, areas: wideAreas(spec, layout, below), frame(moment, lit, pinned) {
    const shown = rankOf(lit);
    lanes.frame(moment, shown);
    put(heads, "opacity", between(moment.cut, 0.5, 1));
    put(under, "opacity", between(moment.cut, 0.5, 1));
    blocks.frame(moment, lit, pinned);
    flights.frame(moment);
    gate?.frame(moment, from, to, shown);
    gateHead?.frame(moment);
    feeds?.frame(moment);
    below.frame(moment, lit);
  } };
}

const rankOf = (what) => (what && Number.isInteger(what.rank) && what.kind !== "out" && what.kind !== "tokens"
  ? what.rank : -1);

/** What a tour card may point to: the columns, the gate, the equation, the inset. */
function wideAreas(spec, layout, below) {
  const top = 4, h = layout.bottom - top + 2, areas = headingPlaces(spec, layout).map(({ column, x, w }) =>
    ({ focus: column.focus, x: x - 8,
    y: top, w: Math.max(w, 40) + 8, h }));
  if (layout.gate) areas.push({ focus: "gate", x: layout.gate.x - 8, y: top, w: layout.gate.w + 16, h: h + FOOT_HIGH
    + 4 });
  return [...areas, ...below.areas];
}

/** The blocks of all columns in all lanes, and the arrows between them: {leaves, frame(moment)}. */
function blocksInto(parent, kit, layout, spec) {
  const { look, ranks } = kit, leaves = [], fading = [], groups = [];
  const all = [...spec.columns.map((column, i) => ({ column, at: layout.columns[i] })),
    ...(spec.result ? [{ column: spec.result, at: layout.result }] : [])];
  for (const rank of ranks) {
    const group = svgNode(parent, "g", {}), middle = layout.lanes[rank].y + layout.lanes[rank].h / 2;
    groups.push(group);
    all.forEach(({ column, at }, i) => {
      const block = column.lanes[rank];
      if (column.lead && i > 0) {
        fading.push(leadInto(group, look, column.lead, all[i - 1].at.x + all[i - 1].column.lanes[rank].w + 6, at.x - 6,
          middle, rank));
      }
      placeBlock(group, kit, block, at.x, middle - block.h / 2, leaves, fading);
    });
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
  block.holder = svgNode(parent, "g", {});
  moveTo(block.holder, x, y);
  block.place = { x, y, w: block.w, h: block.h };
  for (const leaf of leavesOf(block, x, y)) {
    leaves.push(leaf);
    if (leaf.block.lands) {
      svgNode(parent, "rect", { x: leaf.x - 1.5, y: leaf.y - 1.5, width: leaf.block.w + 3, height: leaf.block.h + 3,
        rx: 3, fill: "none",
        stroke: kit.look.grey, "stroke-dasharray": "1 3" });
    }
  }
  block.build(block.holder);
  for (const leaf of leavesOf(block, x, y)) {
    if (leaf.block.kind !== "matrix" && leaf.block.holder) fading.push(leaf.block.holder);
  }
}

/** (moment, lit): every leaf as far as its rank is. */
function leavesFrame(kit, spec, leaves, fading) {
  return (moment, lit) => {
    const ats = kit.ranks.map((rank) => ({ moment, rank, lit, release: between(moment.release, 0.5, 1),
      stage: (s) => clamp01(moment.ranks[rank].computed * spec.stages - s) }));
    for (const { block } of leaves) block.frame(ats[block.rank ?? 0]);
    const opacity = between(moment.cut, 0.5, 1);
    for (const node of fading) put(node, "opacity", opacity);
  };
}

/** "×" or an arrow, in the gap between two blocks. */
function leadInto(parent, look, lead, from, to, y, rank) {
  const group = svgNode(parent, "g", {});
  if (lead === "×") {
    svgNode(group, "text", { x: (from + to) / 2, y: y + 5, "font-size": LARGE, "text-anchor": "middle",
      fill: look.ink }, "×");
  } else {
    svgNode(group, "path", { d: `M${from} ${y}H${Math.max(from, to - 5)}`, stroke: rankHue(rank), "stroke-width": 2 });
    svgNode(group, "path", { d: arrowHead(to, y), fill: rankHue(rank) });
  }
  return group;
}

/** Where the first vector of a block stands: the place that the released result flies to. */
function firstPlace(block) {
  const leaf = leavesOf(block, block.place.x, block.place.y).find(({ block: one }) =>
    one.kind === "vector") ?? { block, x: block.place.x,
    y: block.place.y };
  return { x: leaf.x, y: leaf.y, w: leaf.block.w, h: leaf.block.h };
}

function fanOf(parent, kit, spec, layout, blocks) {
  const root = spec.source.place, middle = (rank) => layout.lanes[rank].y + layout.lanes[rank].h / 2;
  const fan = fanInto(parent, kit, { x: root.x + root.w + 8, y: root.y + root.h / 2 },
    kit.ranks.map((rank) => ({ x: layout.result.x,
    y: middle(rank) })));
  const pieces = piecesInto(spec, blocks.leaves, root);
  return { frame(moment) {
    fan.frame(moment);
    pieces.frame(moment, kit.ranks.length);
  } };
}

function headingPlaces(spec, layout) {
  const places = spec.columns.map((column, i) => ({ column, x: layout.columns[i].x,
    end: layout.columns[i + 1]?.x ?? layout.gate?.x ?? layout.result?.x ?? layout.width }));
  if (spec.result) places.push({ column: spec.result, x: layout.result.x, end: layout.feeds?.x ?? layout.width });
  return places.map((place) => ({ ...place, w: place.end - place.x - 10 }));
}

function feedsInto(parent, kit, spec, layout) {
  const { look, ranks } = kit, { x } = layout.feeds, group = svgNode(parent, "g", {});
  const lines = wrapText(spec.feeds, layout.feeds.w - 16, SMALL, look.font);
  svgNode(group, "text", { x: x + 12, y: 20, "font-size": LARGE, "font-weight": 600, fill: look.ink }, "feeds");
  lines.slice(0, 3).forEach((line, i) => svgNode(group, "text", { x: x + 12, y: 36 + 14 * i, "font-size": SMALL,
    fill: look.muted }, line));
  const arrows = svgNode(group, "g", {});
  for (const rank of ranks) {
    const lane = layout.lanes[rank], y = lane.y + lane.h / 2;
    svgNode(arrows, "path", { d: `M${x + 12} ${y}H${x + 39}`, stroke: look.grey, "stroke-width": 2 });
    svgNode(arrows, "path", { d: arrowHead(x + 44, y), fill: look.grey });
  }
  return { frame(moment) {
    put(group, "opacity", between(moment.cut, 0.5, 1));
    put(arrows, "opacity", moment.phase < AFTER ? 0 : between(moment.feed, 0.7, 1));
  } };
}

/** Equation and inset below the lanes, side by side where there is room: {bottom, frame(moment, state, lit)}. */
function belowInto(svg, kit, spec, o, area) {
  const strip = svgNode(svg, "g", {}), insets = svgNode(svg, "g", {}), cutting = svgNode(svg, "g", {});
  const inset = spec.inset?.length ? insetInto(insets, kit, spec.inset, area.full) : { h: 0, w: 0, frame() {} };
  const beside = inset.w > 0 && area.w - inset.w >= 440, left = beside ? inset.w + 8 : 0;
  const equation = equationInto(strip, kit, spec, o.state, area.w - left, o.index), high = Math.max(equation.height,
    area.least);
  moveTo(strip, area.x + left, area.y);
  moveTo(insets, area.x, beside ? area.y : area.y + high + 16);
  moveTo(cutting, area.x, area.y);
  wrapText(cutWords(kit, spec), area.full, SMALL, kit.look.font).slice(0, 6).forEach((line, i) => svgNode(cutting,
    "text", { x: 0,
    y: 14 + 16 * i, "font-size": SMALL, fill: kit.look.ink }, line));
  const areas = [{ focus: "equation", x: area.x + left - 8, y: area.y - 6, w: area.w - left + 8, h: equation.height
    + 4 },
    { focus: "toggle", x: area.x + left - 8, y: area.y - 6, w: area.w - left + 8, h: equation.height + 4 },
    { focus: "inset", x: area.x - 8, y: beside ? area.y - 6 : area.y + high + 10, w: inset.w - 4, h: inset.h + 12 }];
  return { areas, bottom: area.y + (beside ? Math.max(high, inset.h) : high + (inset.h ? 16 + inset.h : 0)),
    frame(moment, lit) {
    const there = between(moment.cut, 0.5, 1);
    put(strip, "opacity", there);
    put(insets, "opacity", there);
    put(cutting, "opacity", 1 - between(moment.cut, 0.2, 0.5));
    equation.frame(moment, lit);
    inset.frame(rankOf(lit) < 0 ? null : lit);
  } };
}

/** How the matrices of a scene are cut, in words. */
function cutWords(kit, spec) {
  const by = (...kinds) => (spec.inset ?? []).filter((whole) => kinds.includes(whole.word)
    && !kit.alone).map((whole) => whole.label);
  const columns = by("columns", "heads", "pieces"), rows = by("rows"), found = [];
  if (columns.length) found.push(`${listWords(columns)}: cut by columns, so the ranks' results lie side by side.`);
  if (rows.length) found.push(`${listWords(rows)}: cut by rows, so the ranks' results are partial sums, to be added.`);
  if (by("answers").length) found.push("The table is cut by rows: one rank has a token's row, the others add zeros.");
  return found.length ? `Before the cut; each colour is the rank that will own the part. ${found.join(" ")}` : "";
}

const listWords = (list) => (list.length < 2 ? list.join("") : `${list.slice(0, -1).join(", ")} and ${list.at(-1)}`);
