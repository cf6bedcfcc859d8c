// The whole matrix first: its strips lie side by side in their owners' colours, part at the cuts, fly to the lanes.

/** All blocks without children below `block`, with their places: [{block, x, y}]. */
function leavesOf(block, x, y, found = []) {
  if (block.children) {
    block.children.forEach((child, i) => leavesOf(child, x + block.places[i][0], y + block.places[i][1], found));
  } else found.push({ block, x, y });
  return found;
}

/** {frame(moment), titles}: moves the weights of `leaves` between their whole matrices and their lanes. */
function flightsInto(parent, kit, leaves, area) {
  const { look } = kit, groups = new Map();
  for (const leaf of leaves) {
    const whole = leaf.block.whole;
    if (!whole || leaf.block.kind !== "matrix") continue;
    if (!groups.has(whole.name)) groups.set(whole.name, { whole, leaves: [] });
    groups.get(whole.name).leaves.push(leaf);
  }
  const list = [...groups.values()].map((group) => ({ ...group, ...wholeSize(group) }));
  const rows = rowsOfWholes(list, area);
  const titles = svgNode(parent, "g", {});
  for (const { group, x, y, scale } of rows) {
    const shape = group.whole.upright ? group.whole.shape : [...group.whole.shape].reverse();
    svgNode(titles, "text", { x, y: y - 24, "font-size": LARGE, "font-weight": 600, fill: look.ink },
      `${group.whole.label}`);
    svgNode(titles, "text", { x, y: y - 9, "font-size": SMALL, fill: look.muted }, `${shapeWords(shape)}, whole`);
    for (const leaf of group.leaves) leaf.from = { x: x + leaf.in.x * scale, y: y + leaf.in.y * scale, scale,
      across: group.across };
  }
  const flying = list.flatMap((group) => group.leaves);
  return { frame(moment) {
    put(titles, "opacity", 1 - between(moment.cut, 0.2, 0.45));
    for (const leaf of flying) {
      const { block, from } = leaf, late = 0.15 * block.rank / Math.max(1, kit.ranks.length);
      const t = ease(between(moment.cut, 0.3 + late, 0.85 + late)), open = between(moment.cut, 0,
        0.3) * 10 * (block.rank
        - (kit.ranks.length - 1) / 2);
      moveTo(block.node, mix(from.x - leaf.x + (from.across ? open : 0), 0, t), mix(from.y - leaf.y + (from.across ? 0
        : open), 0, t),
        mix(from.scale, 1, t));
    }
  } };
}

/** The size of a whole matrix in the px of its strips, and where each strip lies in it. */
function wholeSize({ whole, leaves }) {
  const sides = (at) => (whole.upright ? [at[1], at[0]] : at), [wide, tall] = whole.upright ? [whole.shape[1],
    whole.shape[0]] : whole.shape;
  const units = leaves.map(({ block }) => {
    const [across, down] = sides(block.whole.at);
    return { x: block.w / (across[1] - across[0]), y: block.h / (down[1] - down[0]) };
  });
  const ux = Math.max(...units.map((unit) => unit.x)), uy = Math.max(...units.map((unit) => unit.y));
  for (const leaf of leaves) {
    const [across, down] = sides(leaf.block.whole.at);
    leaf.in = { x: across[0] * ux, y: down[0] * uy };
  }
  const first = sides(leaves[0].block.whole.at)[0];
  return { w: wide * ux, h: tall * uy, across: first[1] - first[0] < wide };
}

/** The wholes in as few rows as fit in the area, all at one scale, in the middle: [{group, x, y, scale}]. */
function rowsOfWholes(list, area) {
  const gap = 40, title = 44;
  for (let scale = 1.5; ; scale *= 0.9) {
    const rows = [[]];
    let x = 0;
    for (const group of list) {
      if (x > 0 && x + group.w * scale > area.w) {
        rows.push([]);
        x = 0;
      }
      rows.at(-1).push(group);
      x += Math.max(group.w * scale, 88) + gap;
    }
    const heights = rows.map((row) => title + Math.max(0, ...row.map((group) => group.h * scale)));
    const height = heights.reduce((a, b) => a + b, 0), widest = Math.max(0, ...list.map((group) => group.w * scale));
    if (scale > 0.1 && (height > area.h || widest > area.w)) continue;
    let y = area.y + Math.max(0, (area.h - height) / 2);
    return rows.flatMap((row, i) => {
      const used = row.reduce((sum, group) => sum + Math.max(group.w * scale, 88) + gap, -gap);
      let at = area.x + Math.max(0, (area.w - used) / 2);
      const placed = row.map((group) => {
        const place = { group, x: at, y: y + title, scale };
        at += Math.max(group.w * scale, 88) + gap;
        return place;
      });
      y += heights[i];
      return placed;
    });
  }
}

/** A source's pieces: they lie in it until the collective moves them to their lanes. */
function piecesInto(spec, leaves, source) {
  const pieces = spec.pieces ? leaves.filter((leaf) => spec.pieces.includes(leaf.block)
    && leaf.block.kind === "matrix") : [];
  return { frame(moment, count) {
    for (const leaf of pieces) {
      const late = 0.3 * leaf.block.rank / Math.max(1, count), t = ease(between(moment.combine, 0.1 + late, 0.7
        + late));
      const [dx, dy] = leaf.block.lies;
      moveTo(leaf.block.node, mix(source.x + dx - leaf.x, 0, t), mix(source.y + dy - leaf.y, 0, t),
        mix(leaf.block.shrink, 1, t));
    }
  } };
}

/** Arrows in ink from the source to every lane. */
function fanInto(parent, kit, from, targets) {
  const group = svgNode(parent, "g", {}), { look } = kit;
  for (const to of targets) {
    const middle = (from.x + to.x) / 2;
    svgNode(group, "path", { d: `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${to.y} ${to.x - 8} ${to.y}`,
      fill: "none",
      stroke: look.ink, "stroke-width": 1.5 });
    svgNode(group, "path", { d: arrowHead(to.x - 4, to.y), fill: look.ink });
  }
  return { frame(moment) {
    put(group, "opacity", moment.phase < COMBINE ? 0.3 : 1);
  } };
}
