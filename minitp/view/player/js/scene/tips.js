// What lies under the pointer: which array, which element, its value; and the note that says so.

/** Listen to the pointer on `svg`: {know(node, what, box), end()}. `what` goes to host.hover, clicked to host.pin. */
function pointerInto(svg, host, latest) {
  const known = new WeakMap();
  let hovered = null;
  const whatAt = (event) => {
    for (let node = event.target; node && node !== svg; node = node.parentNode) {
      const found = known.get(node);
      if (found) return elementAt(found, node, event);
    }
    return null;
  };
  const show = (what) => {
    if (sameWhat(what, hovered)) return;
    hovered = what;
    host.hover?.(what);
  };
  const over = (event) => {
    const what = whatAt(event), place = svg.getBoundingClientRect();
    show(what && { ...what, x: Math.round(event.clientX - place.left), y: Math.round(event.clientY - place.top) });
  };
  const click = (event) => {
    const what = whatAt(event);
    if (what?.kind === "gate") host.open?.(latest());
    else if (what && what.kind !== "heading") host.pin?.(Object.fromEntries(WHAT.map((key) => [key, what[key]])));
  };
  const listeners = { pointermove: over, pointerleave: () => show(null), click };
  for (const name in listeners) svg.addEventListener(name, listeners[name]);
  return {
    know: (node, what, box) => known.set(node, { what, box }),
    end() {
      for (const name in listeners) svg.removeEventListener(name, listeners[name]);
    },
  };
}

const WHAT = ["kind", "rank", "index", "name", "slot"];
const sameWhat = (a, b) => a === b || Boolean(a && b && [...WHAT, "row"].every((key) => a[key] === b[key]));

/** `what` with the element under the pointer, and the lines of its note. box: {w, h, rows, array} of the node. */
function elementAt({ what, box }, node, event) {
  const array = box?.array, plain = what.symbol ? { ...what, lines: [what.symbol, shapeLine(what)] } : { ...what };
  if (!array?.at || !array.rows || !array.cols) return plain;
  const place = node.getBoundingClientRect(), px = place.width / (box.w + 3);      // the outline is 1.5 px outside
  const share = (at, start, length) => (at - start - 1.5 * px) / (length * px);
  const column = Math.floor(share(event.clientX, place.left, box.w) * array.cols);
  const row = Math.floor(share(event.clientY, place.top, box.h) * box.rows) + array.rows - box.rows;
  const found = { ...what, index: clamp(column, 0, array.cols - 1), row: clamp(row, 0, array.rows - 1) };
  return { ...found, lines: elementLines(found, array) };
}

function elementLines(what, array) {
  const value = array.at(what.row, what.index), at = array.rows > 1 ? `${what.row}, ${what.index}` : what.index;
  const number = numberWords(value, decimalsFor([value])), { symbol } = what;
  const exact = array.kind === "f32";
  return [exact ? `${symbol}[${at}] = ${number}` : `${symbol}, block [${at}]: at most ${number}`, shapeLine(what)];
}

function shapeLine(what) {
  const owner = what.state === "whole" ? "whole, the same on every rank" : `${what.state}, rank ${what.rank}`;
  return [owner, shapeWords(what.shape), what.axis].filter(Boolean).join(" · ");
}

/** The note beside the pointer: {frame(hover)}. It stays inside the picture. */
function tipInto(svg, kit, width, height) {
  const { look } = kit, group = svgNode(svg, "g", { "pointer-events": "none", opacity: 0 });
  const ground = rectInto(group, 0, 0, 0, 42, { rx: 4, fill: look.paper, stroke: look.border });
  const texts = [textInto(group, look, 8, 17, ""), textInto(group, look, 8, 33, "", { muted: true })];
  return { frame(hover) {
    const said = Array.isArray(hover?.lines) ? hover.lines.slice(0, 2) : [], { x = 0, y = 0 } = hover ?? {};
    const lines = said.map((line) => fitText(line, width - 32, SMALL, look.font));
    const w = 16 + Math.max(0, ...lines.map((line) => textWidth(line, SMALL, look.font)));
    put(group, "opacity", lines.length ? 1 : 0);
    texts.forEach((text, i) => putText(text, lines[i] ?? ""));
    put(ground, "width", w);
    const top = y + 62 > height ? Math.max(0, y - 50) : y + 16;
    moveTo(group, lines.length ? clamp(x + 12, 4, Math.max(4, width - w - 4)) : 0, lines.length ? top : 0);
  } };
}

/** A frame around what a tour card speaks of: {frame(focus)}. areas: [{focus, x, y, w, h}]. */
function focusInto(svg, kit, areas) {
  const look = { rx: 6, fill: "none", stroke: kit.look.ink, "stroke-width": 2, "stroke-opacity": 0.6,
    "pointer-events": "none", opacity: 0 };
  const nodes = areas.map(({ x, y, w, h }) => rectInto(svg, x, y, Math.max(0, w), Math.max(0, h), look));
  return { frame(focus) {
    nodes.forEach((node, i) => put(node, "opacity", focus && areas[i].focus === focus ? 1 : 0));
  } };
}
