// One lane per rank: its colour, its name, what it does right now in words, hatched while it waits.

/** {frame(moment, lit)}: the lanes' grounds, names and states. */
function lanesInto(parent, kit, layout, sync) {
  const { look, level } = kit;
  const nodes = layout.lanes.map((lane, rank) => {
    const group = svgNode(parent, "g", {});
    moveTo(group, EDGE, lane.y);
    svgNode(group, "rect", { width: layout.laneWidth, height: lane.h, rx: 6, fill: rankHue(rank), "fill-opacity": 0.07 });
    const hatch = svgNode(group, "rect", { x: layout.corridor.x - EDGE, y: 0, width: Math.max(0, layout.corridor.w),
      height: lane.h, fill: `url(#${HATCH})`, opacity: 0 });
    const edge = svgNode(group, "rect", { width: 6, height: lane.h, rx: 3, fill: rankHue(rank) });
    const middle = lane.h / 2, oneLine = level.bare;
    svgNode(group, "text", { x: 16, y: oneLine ? middle + 4 : middle - 4, "font-size": oneLine ? SMALL : LARGE,
      "font-weight": 600, fill: look.ink }, `rank ${rank}`);
    const status = svgNode(group, "text", { x: oneLine ? 64 : 16, y: oneLine ? middle + 4 : middle + 14,
      "font-size": SMALL, fill: look.muted }, "");
    kit.know(group, { kind: "lane", rank }, { w: level.gutter, h: lane.h, plain: true });
    return { group, hatch, edge, status };
  });
  const room = level.gutter - (level.bare ? 68 : 20);
  return {
    frame(moment, lit) {
      nodes.forEach((node, rank) => {
        const at = moment.ranks[rank], waiting = moment.phase === ARRIVING && at.arrived && !sync.broken
          && moment.arrived < moment.needed;
        putText(node.status, fitText(statusOf(sync, moment, rank), room, SMALL, look.font));
        put(node.hatch, "opacity", waiting && at.wait > 0 ? 0.8 : 0);
        put(node.edge, "width", lit === rank ? 10 : 6);
        put(node.group, "opacity", mix(0.0, 1, between(moment.cut, 0.35, 0.8)));
      });
    },
  };
}

/** Symbol, shape and state word above each column. */
function headingsInto(parent, kit, layout, columns) {
  const { look } = kit;
  for (const { column, x, w } of columns) {
    const group = svgNode(parent, "g", {});
    moveTo(group, x, 0);
    svgNode(group, "text", { x: 0, y: 20, "font-size": LARGE, "font-weight": 600, fill: look.ink },
      fitText(column.symbol, w, LARGE, look.font, true));
    const lines = [column.shape, ...wrapText(column.state ?? "", w, SMALL, look.font)].filter(Boolean).slice(0, 3);
    lines.forEach((line, i) => svgNode(group, "text", { x: 0, y: 36 + 14 * i, "font-size": SMALL, fill: look.muted },
      fitText(line, w, SMALL, look.font)));
    kit.know(group, { kind: "heading", focus: column.focus ?? column.id }, { plain: true });
  }
}

/** The blocks of all columns in all lanes, and the arrows between them. */
function blocksInto(parent, kit, layout, spec) {
  const { look, ranks } = kit, placed = [];
  const all = [...spec.columns.map((column, i) => ({ column, at: layout.columns[i] })),
    ...(spec.result ? [{ column: spec.result, at: layout.result, result: true }] : [])];
  const lanes = ranks.map((rank) => {
    const group = svgNode(parent, "g", {}), lane = layout.lanes[rank], middle = lane.y + lane.h / 2, leads = [];
    all.forEach(({ column, at, result }, i) => {
      const block = column.lanes[rank], y = middle - block.h / 2;
      if (column.lead && i > 0 && !result) {
        const before = all[i - 1], from = before.at.x + before.column.lanes[rank].w + 6;
        leads.push(leadInto(group, look, column.lead, from, at.x - 6, middle, rank, column.stage ?? i));
      }
      block.holder = svgNode(group, "g", {});
      moveTo(block.holder, at.x, y);
      block.build(block.holder);
      block.place = { x: at.x, y, w: block.w, h: block.h };
      placed.push({ rank, block, column });
    });
    return { group, leads };
  });
  return { lanes, placed };
}

/** "×" or an arrow, in the gap between two blocks. */
function leadInto(parent, look, lead, from, to, y, rank) {
  if (lead === "×") {
    return svgNode(parent, "text", { x: (from + to) / 2, y: y + 5, "font-size": LARGE, "text-anchor": "middle",
      fill: look.ink }, "×");
  }
  const group = svgNode(parent, "g", {});
  svgNode(group, "path", { d: `M${from} ${y}H${to - 5}`, stroke: rankHue(rank), "stroke-width": 2, fill: "none" });
  svgNode(group, "path", { d: arrowHead(to, y), fill: rankHue(rank) });
  return group;
}
