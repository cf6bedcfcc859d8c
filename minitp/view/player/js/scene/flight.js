// The whole matrix first: its strips lie side by side in their owners' colors, part at the cuts, fly to the lanes.

const WHOLE_GAP = 40, WHOLE_TITLE = 56, WHOLE_LEAST = 88;         // px between wholes, above one, for the title's width

/** {frame(moment)}: moves the weights of `leaves` between their whole matrices, drawn in `area`, and their lanes. */
function flightsInto(parent, kit, leaves, area) {
  const groups = new Map(), titles = groupInto(parent), middle = (kit.ranks.length - 1) / 2;
  for (const leaf of leaves) {
    const { whole, kind } = leaf.block;
    if (!whole || kind !== "matrix") continue;
    if (!groups.has(whole.name)) groups.set(whole.name, { whole, leaves: [] });
    groups.get(whole.name).leaves.push(leaf);
  }
  const list = [...groups.values()].map((group) => ({ ...group, ...wholeSize(group) }));
  for (const { group, x, y, scale } of placeWholes(list, area)) {
    const { whole } = group, shape = whole.upright ? whole.shape : [...whole.shape].reverse();
    textInto(titles, kit.look, x, y - 36, whole.label, { size: LARGE, bold: true });
    textInto(titles, kit.look, x, y - 21, `${shapeWords(shape)}, whole`, { muted: true });
    for (const leaf of group.leaves) {
      leaf.from = { x: x + leaf.in.x * scale, y: y + leaf.in.y * scale, scale, across: group.across };
    }
  }
  const flying = list.flatMap((group) => group.leaves);
  return { frame({ cut }) {
    put(titles, "opacity", 1 - between(cut, 0.2, 0.45));
    for (const { block, from, x, y } of flying) {
      const late = 0.15 * block.rank / kit.ranks.length, t = ease(between(cut, 0.3 + late, 0.85 + late));
      const open = between(cut, 0, 0.3) * 10 * (block.rank - middle), [dx, dy] = from.across ? [open, 0] : [0, open];
      moveTo(block.node, mix(from.x - x + dx, 0, t), mix(from.y - y + dy, 0, t), mix(from.scale, 1, t));
    }
  } };
}

/** A whole matrix in the px of its strips: {w, h, across: whether columns are cut}; `in`: a strip's place in it. */
function wholeSize({ whole, leaves }) {
  const turned = (pair) => (whole.upright ? [pair[1], pair[0]] : pair), [wide, tall] = turned(whole.shape);
  const spans = leaves.map(({ block }) => turned(block.whole.at)), length = ([low, high]) => high - low;
  const ux = Math.max(...leaves.map(({ block }, i) => block.w / length(spans[i][0])));
  const uy = Math.max(...leaves.map(({ block }, i) => block.h / length(spans[i][1])));
  leaves.forEach((leaf, i) => { leaf.in = { x: spans[i][0][0] * ux, y: spans[i][1][0] * uy }; });
  return { w: wide * ux, h: tall * uy, across: length(spans[0][0]) < wide };
}

/** The wholes in rows, at the largest scale at which all fit in the area, in its middle: [{group, x, y, scale}]. */
function placeWholes(list, area) {
  for (let scale = 1.5; ; scale *= 0.9) {
    const room = (group) => Math.max(group.w * scale, WHOLE_LEAST) + WHOLE_GAP, rows = [[]];
    let used = 0;
    for (const group of list) {
      if (used > 0 && used + group.w * scale > area.w) [used] = [0, rows.push([])];
      rows.at(-1).push(group);
      used += room(group);
    }
    const heights = rows.map((row) => WHOLE_TITLE + Math.max(0, ...row.map((group) => group.h * scale)));
    const height = heights.reduce((a, b) => a + b, 0), fits = list.every((group) => group.w * scale <= area.w);
    if (scale > 0.1 && !(fits && height <= area.h)) continue;
    let y = area.y + Math.max(0, (area.h - height) / 2);
    return rows.flatMap((row, i) => {
      const width = row.reduce((sum, group) => sum + room(group), -WHOLE_GAP);
      let x = area.x + Math.max(0, (area.w - width) / 2);
      const placed = row.map((group) => ({ group, x: (x += room(group)) - room(group), y: y + WHOLE_TITLE, scale }));
      y += heights[i];
      return placed;
    });
  }
}

/** A source's pieces: they lie in it until the collective moves them to their lanes. */
function piecesInto(spec, leaves, source, count) {
  const pieces = leaves.filter(({ block }) => block.kind === "matrix" && spec.pieces.includes(block));
  return { frame({ combine }) {
    for (const { block, x, y } of pieces) {
      const late = 0.3 * block.rank / count, t = ease(between(combine, 0.1 + late, 0.7 + late)), [dx, dy] = block.lies;
      moveTo(block.node, mix(source.x + dx - x, 0, t), mix(source.y + dy - y, 0, t), mix(block.shrink, 1, t));
    }
  } };
}

/** Arrows in ink from the source to every lane. */
function fanInto(parent, kit, from, targets) {
  const group = groupInto(parent), { ink } = kit.look;
  for (const to of targets) {
    const middle = (from.x + to.x) / 2;
    const d = `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x - 8} ${to.y}`;
    svgNode(group, "path", { d, fill: "none", stroke: ink, "stroke-width": 1.5 });
    svgNode(group, "path", { d: arrowHead(to.x - 4, to.y), fill: ink });
  }
  return { frame(moment) {
    put(group, "opacity", moment.phase < COMBINE ? 0.3 : 1);
  } };
}
