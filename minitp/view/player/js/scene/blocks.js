// What lies in a lane: vectors, matrices, words. A block is {w, h, build(parent), frame(at)}; `at`: how far we are.

const MOST_CELLS = 400;                 // that are drawn as paths; more are one picture
const SHADES = 14;                      // of a hue in paths
const MOST_ROWS = 6;

/** The frame and clip that vectors and matrices share. `show` 0..1 is how much of it is there, from the left. */
function boxOf(kit, group, o, w, h) {
  const inner = svgNode(group, "svg", { x: 0, y: 0, width: w, height: h, overflow: "hidden" });
  const box = svgNode(group, "rect", { x: -1.5, y: -1.5, width: w + 3, height: h + 3, rx: 3, fill: "none" });
  const set = (state, lit) => {
    const line = outlineOf(kit.look, state, o.rank);
    put(box, "stroke", line.stroke);
    put(box, "stroke-width", lit ? 4 : line.width);
    put(box, "stroke-dasharray", line.dash);
  };
  return { inner, set };
}

/** An array of few rows: cells of hue (grey where whole), opacity for magnitude, a dash for negative. */
function vectorBlock(kit, o) {
  const array = o.array, rows = Math.max(1, Math.min(MOST_ROWS, array ? array.rows : 1));
  const cellHeight = o.rowHeight ?? (rows > 1 ? kit.level.rows : kit.level.row);
  const w = Math.max(8, o.width), h = rows * cellHeight;
  const block = { w, h, rank: o.rank, kind: "vector", when: o.when ?? ((at) => at.stage(o.stage ?? 0)) };
  let inner, set, group;
  block.build = (parent) => {
    group = svgNode(parent, "g", {});
    svgNode(group, "rect", { width: w, height: h, fill: kit.look.paper });
    ({ inner, set } = boxOf(kit, group, o, w, h));
    if (array && array.rows && array.cols) cellsInto(kit, inner, o, rows, w, cellHeight);
    else if (o.words && o.words !== true) {
      svgNode(inner, "text", { x: w / 2, y: h / 2 + 4, "text-anchor": "middle", "font-size": SMALL,
        fill: kit.look.muted }, fitText(o.words, w - 8, SMALL, kit.look.font));
    }
    if (o.what) kit.know(group, o.what, { w, h, rows, array });
  };
  block.frame = (at) => {
    const show = block.when(at);
    put(inner, "width", w * show);
    set(show > 0 ? o.stateAt?.(at) ?? o.state : "empty");
  };
  return block;
}

const hundredths = (x) => Math.round(x * 100) / 100;
const boxPath = (x, y, w, h) => `M${hundredths(x)} ${hundredths(y)}h${hundredths(w)}v${hundredths(h)}h${hundredths(-w)}z`;

/** The cells of a vector, the last rows where not all fit: one path per shade, and one picture where they are many. */
function cellsInto(kit, parent, o, rows, w, cellHeight) {
  const array = o.array, cols = array.cols, first = array.rows - rows, cell = w / cols, gap = cell >= 3 ? 1 : 0;
  const hue = fillOf(kit.look, o.state, o.rank), high = cellHeight - (rows > 1 ? 1 : 0), wide = Math.max(0.5,
    cell - gap);
  if (rows * cols > MOST_CELLS) {
    svgNode(parent, "image", { width: w, height: rows * cellHeight, preserveAspectRatio: "none",
      href: heatPicture(`${o.key}|${kit.sync.index}`, rowsOf(array, first, array.rows), hue, o.largest,
        kit.look.paper) });
    return;
  }
  const shades = new Map();
  let light = "", dark = "";
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < cols; j++) {
      const value = array.at(first + i, j), opacity = Math.round(opacityOf(value, o.largest) * SHADES) / SHADES;
      shades.set(opacity, (shades.get(opacity) ?? "") + boxPath(j * cell, i * cellHeight, wide, high));
      if (value < 0 && cell >= 3) {
        const dash = boxPath(j * cell + wide * 0.25, (i + 0.5) * cellHeight - 0.75, wide * 0.5, 1.5);
        if (opacity > 0.45) light += dash;
        else dark += dash;
      }
    }
  }
  for (const [opacity, d] of shades) svgNode(parent, "path", { d, fill: hue, "fill-opacity": opacity });
  if (light) svgNode(parent, "path", { d: light, fill: kit.look.paper });
  if (dark) svgNode(parent, "path", { d: dark, fill: hue });
}

/** A weight shard: one picture; while it is being used a line sweeps over the column that is multiplied just now. */
function matrixBlock(kit, o) {
  const { w, h } = o, block = { w, h, rank: o.rank, kind: "matrix", whole: o.whole, lands: o.lands,
    byColumns: o.byColumns,
    shrink: o.shrink ?? 1 };
  let group, set, picture, sweep, inner;
  block.build = (parent) => {
    group = svgNode(parent, "g", {});
    block.node = group;
    svgNode(group, "rect", { width: w, height: h, fill: kit.look.paper });
    ({ inner, set } = boxOf(kit, group, o, w, h));
    if (o.array && !kit.level.outlines) {
      picture = svgNode(inner, "image", { width: w, height: h, preserveAspectRatio: "none", href: heatPicture(o.key,
        o.array, fillOf(kit.look, o.state, o.rank), o.largest, kit.look.paper, w / o.array.cols >= 6) });
    } else {
      picture = svgNode(inner, "rect", { width: w, height: h, "fill-opacity": 0.16,
        fill: fillOf(kit.look, o.state, o.rank) });
      if (o.words) {
        svgNode(group, "text", { x: w / 2, y: h / 2 + 4, "text-anchor": "middle", "font-size": SMALL,
          fill: kit.look.ink }, fitText(o.words, w - 4, SMALL, kit.look.font));
      }
    }
    if (o.marks) for (const mark of o.marks) {
      svgNode(group, "rect", { x: -3, y: mark.y * h - 1.5, width: w + 6, height: Math.max(3, mark.h * h) + 3, rx: 2,
        fill: "none", stroke: kit.look.ink, "stroke-width": 1.5 });
    }
    sweep = svgNode(group, "rect", { x: 0, y: -3, width: 3, height: h + 6, rx: 1.5, fill: kit.look.ink, opacity: 0 });
    if (o.what) kit.know(group, o.what, { w, h, array: o.array, rows: o.array ? o.array.rows : 0 });
  };
  /** What stays where it came from: the same cells, faint. */
  block.ghost = (parent, x, y) => o.array && svgNode(parent, "image", { x, y, width: w * block.shrink,
    height: h * block.shrink,
    preserveAspectRatio: "none", opacity: 0.25,
    href: heatPicture(o.key, o.array, kit.look.grey, o.largest, kit.look.paper, false) });
  block.frame = (at) => {
    const s = at.stage(o.stage);
    put(picture, "opacity", at.moment.cut < 1 || s > 0 ? 1 : 0.45);
    put(sweep, "x", mix(0, w - 3, s));
    put(sweep, "opacity", s > 0 && s < 1 && o.sweeps !== false ? 0.85 : 0);
    set(o.state, at.lit && at.lit.kind === "shard" && at.lit.rank === o.rank && at.lit.name === o.what?.name);
  };
  return block;
}

/** Words in a frame, or bare: a token, "owns none", a best candidate. */
function wordsBlock(kit, o) {
  const size = o.size ?? SMALL, pad = o.bare ? 0 : 8;
  const shown = fitText(o.text, (o.width ?? 400) - 2 * pad, size, kit.look.font, o.bold);
  const w = o.width ?? textWidth(shown, size, kit.look.font, o.bold) + 2 * pad, h = o.height ?? size + (o.bare ? 4
    : 10);
  const block = { w, h, rank: o.rank, kind: "words", when: o.when ?? ((at) => at.stage(o.stage ?? 0)) };
  let set, text;
  block.build = (parent) => {
    const group = svgNode(parent, "g", {});
    if (!o.bare) ({ set } = boxOf(kit, group, o, w, h));
    text = svgNode(group, "text", { x: o.anchor === "start" ? pad : w / 2, y: h / 2 + size * 0.36, fill: o.muted ?
      kit.look.muted : kit.look.ink, "font-size": size, "text-anchor": o.anchor ?? "middle",
      ...(o.bold ? { "font-weight": 600 } : {}) }, shown);
    if (o.what) kit.know(group, o.what, { w, h });
  };
  block.frame = (at) => {
    const show = block.when(at);
    set?.(show > 0 ? o.state ?? "whole" : "empty");
    put(text, "opacity", show > 0 || o.state === "empty" ? 1 : 0);
  };
  return block;
}

/** Blocks below one another (or beside), each at the left (or in the middle of the height). */
function stackOf(blocks, gap = 8, beside = false) {
  const list = blocks.filter(Boolean);
  const w = beside ? list.reduce((sum, b) => sum + b.w, 0) + gap * Math.max(0, list.length - 1)
    : Math.max(0, ...list.map((b) => b.w));
  const h = beside ? Math.max(0, ...list.map((b) => b.h))
    : list.reduce((sum, b) => sum + b.h, 0) + gap * Math.max(0, list.length - 1);
  let at = 0;
  const places = list.map((b) => {
    const place = beside ? [at, (h - b.h) / 2] : [0, at];
    at += (beside ? b.w : b.h) + gap;
    return place;
  });
  return {
    w, h, kind: "stack", children: list, places,
    build(parent) {
      list.forEach((b, i) => {
        b.holder = svgNode(parent, "g", {});
        moveTo(b.holder, places[i][0], places[i][1]);
        b.build(b.holder);
      });
    },
  };
}

/** A block with a short word at its left, in a gutter of `width`. */
function labelled(kit, label, block, width) {
  const words = { w: width, h: block.h, kind: "words", frame() {}, build(parent) {
    svgNode(parent, "text", { x: width - 6, y: block.h / 2 + 4, "text-anchor": "end", "font-size": SMALL,
      fill: kit.look.muted }, label);
  } };
  return stackOf([words, block], 0, true);
}
