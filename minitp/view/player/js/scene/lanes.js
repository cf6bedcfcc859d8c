// One lane per rank: its color, its name, what it does right now in words, hatched while it waits.

/** {frame(moment, lit)}: the lanes' grounds, names and states. */
function lanesInto(parent, kit, layout) {
  const { look, level, sync } = kit, { bare } = level, room = level.gutter - (bare ? 68 : 20);
  const nodes = layout.lanes.map(({ y, h }, rank) => {
    const group = groupInto(parent, EDGE, y), middle = h / 2, hue = rankHue(rank), { corridor } = layout;
    rectInto(group, 0, 0, layout.laneWidth, h, { rx: 6, fill: hue, "fill-opacity": 0.07 });
    const hatched = { fill: `url(#${HATCH})`, opacity: 0 };
    const hatch = rectInto(group, corridor.x - EDGE, 0, Math.max(0, corridor.w), h, hatched);
    const edge = rectInto(group, 0, 0, 6, h, { rx: 3, fill: hue });
    const name = kit.model.lanes[rank] ?? `rank ${rank}`;
    textInto(group, look, 16, middle + (bare ? 4 : -4), name, { size: bare ? SMALL : LARGE, bold: true });
    const status = textInto(group, look, bare ? 68 : 16, middle + (bare ? 4 : 14), "", { muted: true });
    kit.know(group, { kind: "lane", rank });
    return { group, hatch, edge, status };
  });
  return { frame(moment, lit) {
    nodes.forEach(({ group, hatch, edge, status }, rank) => {
      putText(status, fitText(statusOf(sync, moment, rank), room, SMALL, look.font));
      put(hatch, "opacity", isWaiting(sync, moment, rank) ? 0.8 : 0);
      put(edge, "width", lit === rank ? 10 : 6);
      put(group, "opacity", between(moment.cut, 0.35, 0.8));
    });
  } };
}

/** Symbol, shape and state word above a column, at (x, y) in `w` px and at most `most` lines below the symbol. */
function headingInto(parent, kit, column, { x, y = 0, w, most = 3 }) {
  const { look } = kit, group = groupInto(parent, x, y), fits = textWidth(column.symbol, LARGE, look.font, true) <= w;
  const symbol = fits ? column.symbol : column.short ?? column.symbol;
  textInto(group, look, 0, 20, symbol, { size: LARGE, bold: true, room: w });
  linesInto(group, look, 0, 36, headingLines(kit, column, w, most), 13, { muted: true });
  kit.know(group, { kind: "heading", focus: column.focus });
}

/**
 * Shape and state of a column as at most `most` lines; the state's first word alone where there is no more room, and
 * of a shape nothing rather than a part.
 */
function headingLines(kit, column, w, most) {
  const { font } = kit.look, fits = (text) => textWidth(text, SMALL, font) <= w;
  const lines = (text) => (text.split(" ").every(fits) ? wrapText(text, w, SMALL, font) : []);
  const close = column.shape.replaceAll(" × ", "×"), wrapped = lines(column.shape);
  const inOne = [column.shape, close].find(fits) ?? (wrapped.length < most ? null : "");
  const shape = inOne === null ? wrapped : [inOne].filter(Boolean);
  const all = [...shape, ...lines(column.state)];
  return all.length <= most ? all : [...shape, ...lines(column.state.split(":")[0])].slice(0, most);
}

/** The name of the collective, how many have arrived, what it does: at (x, y) in `w` px. */
function gateHeadingInto(parent, kit, spec, { x, y, w }) {
  const { look, sync } = kit, name = /reduce(?!_max)/.test(sync.op) ? `⊕ ${opName(sync.op)}` : opName(sync.op);
  textInto(parent, look, x, y + 20, name, { size: LARGE, bold: true, room: w });
  const count = textInto(parent, look, x, y + 36, "", { bold: true });
  const note = textInto(parent, look, x, y + 49, "", { muted: true });
  const waits = spec.gate.kind === "fan" ? `waits for rank ${spec.root}` : "waits for all";
  return { frame({ arrived, needed, phase }) {
    const alone = needed === 1, nothing = isSum(spec) ? "nothing to add" : "nothing to join";
    const now = alone && kit.alone ? nothing : phase < COMBINE && !alone ? waits : spec.gate.word;
    const stays = sync.never && arrived === needed - sync.missing.length;
    const came = alone && sync.among > 1 ? `${sync.among} devices`
      : alone ? "one rank alone" : `${arrived} of ${needed} arrived`;
    putText(count, fitText(sync.broken ? "skipped" : came, w, SMALL, look.font, true));
    putText(note, fitText(sync.broken ? "nobody waits" : stays ? (spec.gate.kind === "fan" ? "never ends" : "never opens") : now, w, SMALL, look.font));
  } };
}
