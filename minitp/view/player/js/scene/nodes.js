// SVG nodes that are made once and then only have attributes changed: a frame costs what has changed, nothing else.

const SVG_SPACE = "http://www.w3.org/2000/svg";

/** A node with its attributes, in `parent` where one is given. Text is a text node, never markup. */
function svgNode(parent, tag, attributes, text) {
  const node = document.createElementNS(SVG_SPACE, tag);
  node.kept = {};
  for (const name in attributes) put(node, name, attributes[name]);
  if (text !== undefined) putText(node, text);
  if (parent) parent.appendChild(node);
  return node;
}

/** Set an attribute, only where it differs from the last one: to compare is cheap, to touch the document is not. */
function put(node, name, value) {
  if (typeof value === "number") value = Number.isFinite(value) ? Math.round(value * 100) / 100 : 0;
  if (node.kept[name] === value) return;
  node.kept[name] = value;
  node.setAttribute(name, value);
}

function putText(node, text) {
  text = String(text);
  if (node.kept["#text"] === text) return;
  node.kept["#text"] = text;
  node.textContent = text;
}

function moveTo(node, x, y, scale = 1) {
  const at = `translate(${Math.round(x * 100) / 100} ${Math.round(y * 100) / 100})`;
  put(node, "transform", scale === 1 ? at : `${at} scale(${Math.round(scale * 1000) / 1000})`);
}

const LARGE = 14;                       // the two sizes of type
const SMALL = 12;

/** A group, at (x, y) where given. */
function groupInto(parent, x, y) {
  const group = svgNode(parent, "g", {});
  if (x !== undefined) moveTo(group, x, y);
  return group;
}

const rectInto = (parent, x, y, width, height, more) => svgNode(parent, "rect", { x, y, width, height, ...more });

/** Text with its baseline at y. o: size, bold, muted, fill, anchor (middle, end), room (px; more is cut). */
function textInto(parent, look, x, y, text, o = {}) {
  const size = o.size ?? SMALL, shown = o.room === undefined ? text : fitText(text, o.room, size, look.font, o.bold);
  return svgNode(parent, "text", {
    x, y, "font-size": size, fill: o.fill ?? (o.muted ? look.muted : look.ink),
    ...(o.bold ? { "font-weight": 600 } : {}), ...(o.anchor ? { "text-anchor": o.anchor } : {}),
  }, shown);
}

/** Lines of text, `step` px apart. */
function linesInto(parent, look, x, y, lines, step, o = {}) {
  return lines.map((line, i) => textInto(parent, look, x, y + step * i, line, o));
}

const sceneMeasure = { pen: null, widths: new Map() };

/** The width of a text in px. Measured once per text: laying out must not wait for the document. */
function textWidth(text, size, font, bold = false) {
  const key = `${bold ? "b" : ""}${size}${font}|${text}`;
  let width = sceneMeasure.widths.get(key);
  if (width === undefined) {
    sceneMeasure.pen ??= document.createElement("canvas").getContext("2d");
    sceneMeasure.pen.font = `${bold ? "600 " : ""}${size}px sans-serif`;      // stays where the next one is refused
    sceneMeasure.pen.font = `${bold ? "600 " : ""}${size}px ${font}`;
    width = sceneMeasure.pen.measureText(text).width;
    if (sceneMeasure.widths.size > 4000) sceneMeasure.widths.clear();
    sceneMeasure.widths.set(key, width);
  }
  return width;
}

/** `text` cut to `width` px, with an ellipsis where something is left out. */
function fitText(text, width, size, font, bold = false) {
  text = String(text);
  if (textWidth(text, size, font, bold) <= width) return text;
  const letters = Array.from(text);
  let low = 0, high = letters.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (textWidth(letters.slice(0, middle).join("") + "…", size, font, bold) <= width) low = middle;
    else high = middle - 1;
  }
  return low ? letters.slice(0, low).join("") + "…" : "";
}

/** `text` as lines of at most `width` px, broken at spaces. */
function wrapText(text, width, size, font) {
  const lines = [];
  let line = "";
  for (const word of String(text).split(" ")) {
    const longer = line ? `${line} ${word}` : word;
    if (line && textWidth(longer, size, font) > width) {
      lines.push(line);
      line = word;
    } else line = longer;
  }
  if (line) lines.push(line);
  return lines.map((one) => fitText(one, width, size, font));
}

const clamp01 = (t) => Math.min(1, Math.max(0, t));
const between = (t, from, to) => clamp01((t - from) / (to - from));
const mix = (a, b, t) => a + (b - a) * t;
const ease = (t) => t * t * (3 - 2 * t);
