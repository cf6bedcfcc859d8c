// The whole matrices, small, as Wᵀ and coloured by owner: a column cut concatenates, a row cut sums.

/** Whole matrices for the inset: [{label, shape: [in, out], rects: [{rank, x, y, w, h}], word}], places as shares. */
function wholesOf(kit, wanted, word, upright = false) {
  return wanted.map((one) => {
    const rects = [];
    let shape = null;
    for (const rank of kit.ranks) {
      const part = partOf(kit.model, one.name, one.part, rank);
      if (!part) continue;
      shape = part.shape;
      if (part.empty) continue;
      const [across, down] = upright ? [part.at[1], part.at[0]] : part.at;
      const [wide, tall] = upright ? [shape[1], shape[0]] : shape;
      rects.push({ rank, name: part.name, x: across[0] / wide, w: (across[1] - across[0]) / wide, y: down[0] / tall,
        h: (down[1] - down[0]) / tall });
    }
    return shape && { label: one.label, shape: upright ? shape : [shape[1], shape[0]], rects: shareCopies(rects),
      word };
  }).filter(Boolean);
}

/** Where ranks hold copies of the same slice (a kv head), the slice is parted among them so that each is seen. */
function shareCopies(rects) {
  return rects.map((rect, i) => {
    const over = rects.filter((other) => other.x < rect.x + rect.w - 1e-9 && rect.x < other.x + other.w - 1e-9
      && other.y < rect.y + rect.h - 1e-9 && rect.y < other.y + other.h - 1e-9);
    if (over.length < 2) return rect;
    const place = over.indexOf(rects[i]);
    return { ...rect, y: rect.y + rect.h * place / over.length, h: rect.h / over.length, copied: true };
  });
}

/** The inset at (0, 0): {w, h, frame(lit)}. Sides are in proportion to the true shapes, within 40 to 88 px. */
function insetInto(parent, kit, wholes, width) {
  const { look } = kit, longest = Math.max(1, ...wholes.flatMap((whole) => whole.shape));
  const parts = [];
  let x = 0, y = 0, rowHeight = 0, widest = 0;
  for (const whole of wholes) {
    const w = Math.max(32, 96 * whole.shape[1] / longest), h = Math.max(24, 72 * whole.shape[0] / longest);
    const title = `${whole.label} ${whole.shape.join(" × ")}`, words = insetWords(whole);
    const room = Math.max(w, textWidth(title, SMALL, look.font), textWidth(words, SMALL, look.font));
    if (x > 0 && x + room > width) {
      x = 0;
      y += rowHeight + 16;
      rowHeight = 0;
    }
    const group = svgNode(parent, "g", {});
    moveTo(group, x, y);
    svgNode(group, "text", { x: 0, y: 11, "font-size": SMALL, fill: look.ink }, title);
    svgNode(group, "text", { x: 0, y: 26, "font-size": SMALL, fill: look.muted }, words);
    for (const rect of whole.rects) {
      const node = svgNode(group, "rect", { x: rect.x * w, y: 34 + rect.y * h, width: Math.max(1, rect.w * w - 1),
        height: Math.max(1, rect.h * h - 1), rx: 2, fill: rankHue(rect.rank), "fill-opacity": 0.6, stroke: look.ink,
        "stroke-width": 0 });
      kit.know(node, { kind: "shard", rank: rect.rank, name: rect.name }, { plain: true });
      parts.push({ node, rect });
    }
    rowHeight = Math.max(rowHeight, 34 + h);
    x += room + 24;
    widest = Math.max(widest, x);
  }
  return {
    h: y + rowHeight, w: widest,
    frame(lit) {
      for (const { node, rect } of parts) {
        const on = lit && lit.rank === rect.rank && (!lit.name || lit.name === rect.name);
        put(node, "stroke-width", on ? 2 : 0);
        put(node, "fill-opacity", on ? 1 : 0.6);
      }
    },
  };
}

const INSET_WORDS = { columns: "columns: concatenates", rows: "rows: sums", heads: "columns, by heads",
  pieces: "columns: concatenates",
  answers: "rows: one rank answers" };

const insetWords = (whole) => (new Set(whole.rects.map((rect) => rect.rank)).size < 2 ? "not cut"
  : INSET_WORDS[whole.word] + (whole.rects.some((rect) => rect.copied) ? ", copies" : ""));
