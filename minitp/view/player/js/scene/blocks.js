// What lies in a lane: vectors, matrices, words. A block is {w, h, build(parent), frame(at)}; `at`: how far we are.

const MOST_CELLS = 400;                 // that are drawn as paths; more are one picture
const SHADES = 14;                      // of a hue in paths
const MOST_ROWS = 6;

/** The frame and clip that all blocks share: what `inner` holds shows as wide as `inner` is. */
function boxOf(kit, group, o, w, h) {
  const inner = svgNode(group, "svg", { x: 0, y: 0, width: w, height: h, overflow: "hidden" });
  const box = rectInto(group, -1.5, -1.5, w + 3, h + 3, { rx: 3, fill: "none" });
  const set = (state, lit) => {
    const line = outlineOf(kit.look, state, o.rank);
    put(box, "stroke", line.stroke);
    put(box, "stroke-width", lit ? 4 : line.width);
    put(box, "stroke-dasharray", line.dash);
  };
  return { inner, set };
}

/**
 * An array of few rows: cells of hue (gray where whole), opacity for magnitude, a dash for negative.
 * o: array or null, rank, state, stage or when(at), width, rowHeight, largest, key, what.
 */
function vectorBlock(kit, o) {
  const { array } = o, rows = Math.max(1, Math.min(MOST_ROWS, array ? array.rows : 1));
  const rowHeight = o.rowHeight ?? (rows > 1 ? kit.level.rows : kit.level.row);
  const w = Math.max(8, o.width), h = rows * rowHeight, when = o.when ?? ((at) => at.stage(o.stage ?? 0));
  let inner, set;
  return {
    w, h, rank: o.rank, kind: "vector",
    build(parent) {
      const group = groupInto(parent);
      rectInto(group, 0, 0, w, h, { fill: kit.look.paper });
      ({ inner, set } = boxOf(kit, group, o, w, h));
      if (array?.rows && array.cols) cellsInto(kit, inner, o, rows, w, rowHeight);
      kit.know(group, o.what, { w, h, rows, array });
    },
    frame(at) {
      const show = when(at);
      put(inner, "width", w * show);
      set(show > 0 ? o.state : "empty");
    },
  };
}

const hundredths = (x) => Math.round(x * 100) / 100;
const boxPath = (x, y, w, h) =>
  `M${hundredths(x)} ${hundredths(y)}h${hundredths(w)}v${hundredths(h)}h${hundredths(-w)}z`;

/** The last `rows` rows of a vector's array: one path per shade, and one picture where cells are many. */
function cellsInto(kit, parent, o, rows, w, rowHeight) {
  const { array, largest } = o, { paper } = kit.look, shown = rowsOf(array, array.rows - rows, array.rows);
  const hue = fillOf(kit.look, o.state, o.rank), cell = w / array.cols;
  const wide = Math.max(0.5, cell - (cell >= 3 ? 1 : 0));
  if (rows * array.cols > MOST_CELLS) {
    const href = heatPicture(`${o.key}|${kit.sync.index}`, shown, hue, largest, paper);
    svgNode(parent, "image", { width: w, height: rows * rowHeight, preserveAspectRatio: "none", href });
    return;
  }
  const shades = new Map(), high = rowHeight - (rows > 1 ? 1 : 0);
  let light = "", dark = "";
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < array.cols; j++) {
      const value = shown.at(i, j), opacity = Math.round(opacityOf(value, largest) * SHADES) / SHADES;
      shades.set(opacity, (shades.get(opacity) ?? "") + boxPath(j * cell, i * rowHeight, wide, high));
      if (value < 0 && cell >= 3) {
        const dash = boxPath(j * cell + wide * 0.25, (i + 0.5) * rowHeight - 0.75, wide * 0.5, 1.5);
        if (opacity > 0.45) light += dash;
        else dark += dash;
      }
    }
  }
  for (const [opacity, d] of shades) svgNode(parent, "path", { d, fill: hue, "fill-opacity": opacity });
  if (light) svgNode(parent, "path", { d: light, fill: paper });
  if (dark) svgNode(parent, "path", { d: dark, fill: hue });
}

/**
 * A weight shard as one picture; while it is being used a line sweeps over the column that is multiplied just now.
 * o: w, h, array or null, rank, state, stage, largest, key, words (where there are no numbers), marks: [{y, h}] as
 * shares, sweeps, what, whole (where it lies in the whole matrix), lands and shrink (for the piece of a source);
 * when: it fills as far as that says, as a vector does.
 */
function matrixBlock(kit, o) {
  const { w, h, array } = o, { look } = kit, hue = fillOf(look, o.state, o.rank), shrink = o.shrink ?? 1;
  const { rank, kind = "matrix", whole, lands, byColumns } = o;
  const block = { w, h, rank, kind, whole, lands, byColumns, shrink };
  const image = (parent, more) => svgNode(parent, "image", { preserveAspectRatio: "none", ...more });
  const heat = () => heatPicture(o.key, array, hue, o.largest, look.paper, w / array.cols >= 6);
  let set, picture, sweep, marks, inner;
  /** Make the picture ahead of time: what takes longest of a block. */
  if (array && !kit.level.outlines) block.warm = () => void heat();
  block.build = (parent) => {
    const node = block.node = groupInto(parent);
    rectInto(node, 0, 0, w, h, { fill: look.paper });
    ({ inner, set } = boxOf(kit, node, o, w, h));
    if (block.warm) {
      picture = image(inner, { width: w, height: h, href: heat() });
    } else {
      picture = rectInto(inner, 0, 0, w, h, { fill: hue, "fill-opacity": 0.16 });
      if (o.words) textInto(node, look, w / 2, h / 2 + 4, o.words, { anchor: "middle", room: w - 4 });
    }
    marks = (o.marks ?? []).map((mark) => rectInto(node, -3, mark.y * h - 1.5, w + 6, Math.max(3, mark.h * h) + 3,
      { rx: 2, fill: "none", stroke: look.ink, "stroke-width": 1.5, opacity: 0 }));
    sweep = rectInto(node, 0, -3, 3, h + 6, { rx: 1.5, fill: look.ink, opacity: 0 });
    if (o.what) kit.know(node, o.what, { w, h, array, rows: array ? array.rows : 0 });
  };
  /** What stays where it came from: the same cells, faint. */
  block.ghost = (parent, x, y) => array && image(parent, { x, y, width: w * shrink, height: h * shrink, opacity: 0.25,
    href: heatPicture(o.key, array, look.gray, o.largest, look.paper, false) });
  block.frame = (at) => {
    const s = o.when ? o.when(at) : at.stage(o.stage), { lit } = at;
    if (o.when) put(inner, "width", w * s);
    put(picture, "opacity", at.moment.cut < 1 || s > 0 ? 1 : 0.45);
    for (const mark of marks) put(mark, "opacity", s > 0 ? 1 : 0);
    put(sweep, "x", mix(0, w - 3, s));
    put(sweep, "opacity", at.moment.cut === 1 && s > 0 && s < 1 && o.sweeps !== false ? 0.85 : 0);
    const isLit = lit?.kind === "shard" && lit.rank === o.rank && lit.name === o.what?.name;
    set(o.when && s === 0 ? "empty" : o.state, isLit);
  };
  return block;
}

/** Words in a frame, or bare: a token, "owns none", a best candidate. o: text, width, height, size, bold, muted, … */
function wordsBlock(kit, o) {
  const size = o.size ?? SMALL, pad = o.bare ? 0 : 8, start = o.anchor === "start";
  const w = o.width, h = o.height ?? size + (o.bare ? 4 : 10), when = o.when ?? ((at) => at.stage(o.stage ?? 0));
  let set, text;
  return {
    w, h, rank: o.rank, kind: "words",
    build(parent) {
      const group = groupInto(parent);
      if (!o.bare) ({ set } = boxOf(kit, group, o, w, h));
      text = textInto(group, kit.look, start ? pad : w / 2, h / 2 + size * 0.36, o.text,
        { size, bold: o.bold, muted: o.muted, anchor: start ? "start" : "middle", room: w - 2 * pad });
      if (o.what) kit.know(group, o.what);
    },
    frame(at) {
      const show = when(at);
      set?.(show > 0 ? o.state ?? "whole" : "empty");
      put(text, "opacity", show > 0 || o.state === "empty" ? 1 : 0);
    },
  };
}

/** A frame of `width` that says what isn't there. */
const emptyBlock = (kit, rank, text, stage, width = 80) =>
  wordsBlock(kit, { text, state: "empty", rank, stage, width, height: 24, muted: true });

/** Blocks below one another, or `beside` each other and then in the middle of the height; what is null is left out. */
function stackOf(blocks, gap = 8, beside = false) {
  const children = blocks.filter(Boolean), [along, across] = beside ? ["w", "h"] : ["h", "w"];
  const side = (name) => children.map((child) => child[name]), most = Math.max(0, ...side(across));
  let at = 0;
  const places = children.map((child) => {
    const place = beside ? [at, (most - child.h) / 2] : [0, at];
    at += child[along] + gap;
    return place;
  });
  const length = Math.max(0, at - gap);
  return {
    w: beside ? length : most, h: beside ? most : length, kind: "stack", children, places,
    build(parent) {
      children.forEach((child, i) => {
        child.holder = groupInto(parent, ...places[i]);
        child.build(child.holder);
      });
    },
  };
}

/** A block with a short word at its left, in a gutter of `width`. */
function labelled(kit, label, block, width) {
  const build = (parent) =>
    textInto(parent, kit.look, width - 6, block.h / 2 + 4, label, { anchor: "end", muted: true });
  return stackOf([{ w: width, h: block.h, kind: "words", build, frame() {} }, block], 0, true);
}

/** All blocks without children below `block`, with their places: [{block, x, y}]. */
function leavesOf(block, x = 0, y = 0, found = []) {
  if (!block.children) found.push({ block, x, y });
  block.children?.forEach((child, i) => leavesOf(child, x + block.places[i][0], y + block.places[i][1], found));
  return found;
}
