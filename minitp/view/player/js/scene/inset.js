// The whole matrices, small, as Wᵀ and colored by owner: a column cut concatenates, a row cut sums.

const INSET_WORDS = { columns: "columns: concatenates", rows: "rows: sums", heads: "columns, by heads",
  pieces: "columns: concatenates", answers: "rows: one rank answers" };

/** Whole matrices for the inset: [{label, shape: [in, out], rects: [{rank, name, x, y, w, h}], word}], as shares. */
function wholesOf(kit, wanted, word, upright = false) {
  const turned = (pair) => (upright ? [pair[1], pair[0]] : pair);
  return wanted.map(({ name, part: index, label }) => {
    const all = kit.ranks.map((rank) => ({ rank, part: partOf(kit.model, name, index, rank) }));
    const parts = all.filter(({ part }) => part);
    if (!parts.length) return null;
    const [wide, tall] = turned(parts[0].part.shape);
    const rects = parts.filter(({ part }) => !part.empty).map(({ rank, part }) => {
      const [across, down] = turned(part.at);
      return { rank, name: part.name, x: across[0] / wide, w: (across[1] - across[0]) / wide, y: down[0] / tall,
        h: (down[1] - down[0]) / tall };
    });
    return { label, shape: [tall, wide], rects: shareCopies(rects), word };
  }).filter(Boolean);
}

/** Ranks that hold copies of the same slice (a kv head) each get a stripe of it, over and over: no cut looks so. */
function shareCopies(rects) {
  const apart = (a, b, side, length) => a[side] >= b[side] + b[length] - 1e-9 || b[side] >= a[side] + a[length] - 1e-9;
  return rects.map((rect) => {
    const over = rects.filter((other) => !apart(rect, other, "x", "w") && !apart(rect, other, "y", "h"));
    if (over.length < 2) return rect;
    return { ...rect, copy: over.indexOf(rect), copies: over.length };
  });
}

/** The inset at (0, 0): {w, h, frame(lit)}. Sides are in proportion to the true shapes, within limits. */
function insetInto(parent, kit, wholes, width) {
  const { look } = kit, longest = Math.max(1, ...wholes.flatMap((whole) => whole.shape)), parts = [];
  let x = 0, y = 0, rowHeight = 0, widest = 0;
  for (const whole of wholes) {
    const w = Math.max(32, 96 * whole.shape[1] / longest), h = Math.max(24, 72 * whole.shape[0] / longest);
    const title = `${whole.label} ${shapeWords(whole.shape)}`, words = insetWords(whole);
    const room = Math.max(w, textWidth(title, SMALL, look.font), textWidth(words, SMALL, look.font));
    if (x > 0 && x + room > width) [x, y, rowHeight] = [0, y + rowHeight + 16, 0];
    const group = groupInto(parent, x, y);
    textInto(group, look, 0, 11, title);
    textInto(group, look, 0, 26, words, { muted: true });
    for (const rect of whole.rects) parts.push({ rect, node: sliceInto(group, kit, rect, w, h, 34) });
    rowHeight = Math.max(rowHeight, 34 + h);
    x += room + 24;
    widest = Math.max(widest, x);
  }
  return { w: widest, h: y + rowHeight, frame(lit) {
    for (const { node, rect } of parts) {
      const on = lit && lit.rank === rect.rank && (!lit.name || lit.name === rect.name);
      put(node, "stroke-width", on ? 2 : 0);
      put(node, "fill-opacity", on ? 1 : 0.6);
    }
  } };
}

/** A rank's slice of a whole matrix of w × h px that begins at y = top. */
function sliceInto(parent, kit, rect, w, h, top) {
  const wide = Math.max(1, rect.w * w - 1), high = Math.max(1, rect.h * h - 1);
  const fill = { fill: rankHue(rect.rank), "fill-opacity": 0.6, stroke: kit.look.ink, "stroke-width": 0 };
  const x = rect.x * w, y = top + rect.y * h;
  const node = rect.copies ? svgNode(groupInto(parent, x, y), "path", { ...fill, d: stripesPath(wide, high, rect) })
    : rectInto(parent, x, y, wide, high, { rx: 2, ...fill });
  kit.know(node, { kind: "shard", rank: rect.rank, name: rect.name });
  return node;
}

const STRIPE = 5;                       // px across and down

/** Of the diagonal stripes of a w × h box every `copies`-th one, from number `copy` on. */
function stripesPath(w, h, { copy, copies }) {
  const above = (s) => `${hundredths(Math.min(s, w))} ${hundredths(s - Math.min(s, w))}`;
  const below = (s) => `${hundredths(s - Math.min(s, h))} ${hundredths(Math.min(s, h))}`;
  let d = "";
  for (let from = copy * STRIPE; from < w + h; from += copies * STRIPE) {
    const to = Math.min(from + STRIPE, w + h), corner = (side, at) => (from < side && side < to ? `L${at}` : "");
    d += `M${above(from)}${corner(w, `${w} 0`)}L${above(to)}L${below(to)}${corner(h, `0 ${h}`)}L${below(from)}Z`;
  }
  return d;
}

function insetWords({ rects, word }) {
  if (new Set(rects.map((rect) => rect.rank)).size < 2) return "not cut";
  return INSET_WORDS[word] + (rects.some((rect) => rect.copies) ? "; stripes: copies" : "");
}
