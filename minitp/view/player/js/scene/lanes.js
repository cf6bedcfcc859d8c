// One lane per rank: its colour, its name, what it does right now in words, hatched while it waits.

/** {frame(moment, lit)}: the lanes' grounds, names and states. */
function lanesInto(parent, kit, layout) {
  const { look, level, sync } = kit, room = level.gutter - (level.bare ? 68 : 20);
  const nodes = layout.lanes.map((lane, rank) => {
    const group = svgNode(parent, "g", {}), middle = lane.h / 2, bare = level.bare;
    moveTo(group, EDGE, lane.y);
    svgNode(group, "rect", { width: layout.laneWidth, height: lane.h, rx: 6, fill: rankHue(rank),
      "fill-opacity": 0.07 });
    const hatch = svgNode(group, "rect", { x: layout.corridor.x - EDGE, y: 0, width: Math.max(0, layout.corridor.w),
      height: lane.h,
      fill: `url(#${HATCH})`, opacity: 0 });
    const edge = svgNode(group, "rect", { width: 6, height: lane.h, rx: 3, fill: rankHue(rank) });
    svgNode(group, "text", { x: 16, y: bare ? middle + 4 : middle - 4, "font-size": bare ? SMALL : LARGE,
      "font-weight": 600,
      fill: look.ink }, `rank ${rank}`);
    const status = svgNode(group, "text", { x: bare ? 68 : 16, y: bare ? middle + 4 : middle + 14, "font-size": SMALL,
      fill: look.muted }, "");
    kit.know(group, { kind: "lane", rank }, { plain: true });
    return { group, hatch, edge, status };
  });
  return { frame(moment, lit) {
    nodes.forEach((node, rank) => {
      putText(node.status, fitText(statusOf(sync, moment, rank), room, SMALL, look.font));
      put(node.hatch, "opacity", isWaiting(sync, moment, rank) ? 0.8 : 0);
      put(node.edge, "width", lit === rank ? 10 : 6);
      put(node.group, "opacity", between(moment.cut, 0.35, 0.8));
    });
  } };
}

/** Symbol, shape and state word above each column: [{column, x, w, top, lines}]. */
function headingsInto(parent, kit, places) {
  const { look } = kit;
  for (const { column, x, w, top = 0, lines = 3 } of places) {
    const group = svgNode(parent, "g", {});
    moveTo(group, x, top);
    svgNode(group, "text", { x: 0, y: 20, "font-size": LARGE, "font-weight": 600, fill: look.ink },
      fitText(textWidth(column.symbol, LARGE, look.font, true) > w ? column.short ?? column.symbol : column.symbol, w,
        LARGE, look.font, true));
    headingLines(kit, column, w, lines).forEach((line, i) => svgNode(group, "text", { x: 0, y: 36 + 13 * i,
      "font-size": SMALL,
      fill: look.muted }, line));
    kit.know(group, { kind: "heading", focus: column.focus ?? column.id }, { plain: true });
  }
}

/** Shape and state of a column as at most `most` lines. */
function headingLines(kit, column, w, most) {
  const font = kit.look.font, state = wrapText(column.state ?? "", w, SMALL, font);
  const lines = [...wrapText(column.shape ?? "", w, SMALL, font).slice(0, 1), ...state];
  const shown = lines.filter(Boolean), last = shown.slice(most - 1).join(" ");
  return shown.length > most ? [...shown.slice(0, most - 1), fitText(last, w, SMALL, font)] : shown;
}

/** The name of the collective, how many have arrived, what it does: at (x, y) in `w` px. */
function gateHeading(parent, kit, spec, { x, y, w }) {
  const { look, sync } = kit;
  svgNode(parent, "text", { x, y: y + 20, "font-size": LARGE, "font-weight": 600, fill: look.ink },
    fitText(opWords(sync.op), w, LARGE, look.font, true));
  const count = svgNode(parent, "text", { x, y: y + 36, "font-size": SMALL, "font-weight": 600, fill: look.ink }, "");
  const note = svgNode(parent, "text", { x, y: y + 49, "font-size": SMALL, fill: look.muted }, "");
  const waits = spec.rooted ? `waits for rank ${spec.root}` : "waits for all";
  return { frame(moment) {
    putText(count, fitText(sync.broken ? "skipped" : moment.needed === 1 ? "one rank alone"
      : `${moment.arrived} of ${moment.needed} arrived`, w, SMALL, look.font, true));
    putText(note, fitText(sync.broken ? "nobody waits" : moment.phase < COMBINE && moment.needed > 1 ? waits
      : spec.gate.word, w, SMALL,
      look.font));
  } };
}

const opWords = (op) => (/reduce/.test(op) ? `⊕ ${opName(op)}` : opName(op));
