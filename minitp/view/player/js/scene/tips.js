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
  const leave = () => show(null);
  const click = (event) => {
    const what = whatAt(event);
    if (what?.kind === "gate") host.open?.(latest());
    else if (what && what.kind !== "heading") host.pin?.({ kind: what.kind, rank: what.rank, index: what.index,
      name: what.name, slot: what.slot });
  };
  const listeners = { pointermove: over, pointerleave: leave, click };
  for (const name in listeners) svg.addEventListener(name, listeners[name]);
  return {
    know: (node, what, box) => known.set(node, { what, box }),
    end() {
      for (const name in listeners) svg.removeEventListener(name, listeners[name]);
    },
  };
}

const sameWhat = (a, b) => a === b || Boolean(a && b && ["kind", "rank", "name", "slot", "index",
  "row"].every((key) => a[key] === b[key]));

/** `what` with the element under the pointer, and the lines of its note. */
function elementAt({ what, box }, node, event) {
  const found = { ...what }, array = box?.array;
  if (array?.rows && array.cols && box.w) {
    const place = node.getBoundingClientRect(), px = place.width / (box.w + 3);
    const column = Math.floor((event.clientX - place.left - 1.5 * px) / (box.w * px) * array.cols);
    const row = Math.floor((event.clientY - place.top - 1.5 * px) / (box.h * px) * box.rows);
    found.index = Math.min(array.cols - 1, Math.max(0, column));
    found.row = Math.min(array.rows - 1, Math.max(0, row + array.rows - box.rows));
    found.lines = elementLines(found, array);
  } else if (what.symbol) found.lines = [what.symbol, shapeLine(what)];
  return found;
}

function elementLines(what, array) {
  const value = array.at(what.row, what.index), at = array.rows > 1 ? `${what.row}, ${what.index}` : what.index;
  const number = numberWords(value, decimalsFor([value]));
  const exact = array.kind === "f32" ? `${what.symbol}[${at}] = ${number}`
    : `${what.symbol}: largest magnitude of block [${at}] is ${number}`;
  return [exact, shapeLine(what)];
}

function shapeLine(what) {
  const owner = what.state === "whole" ? "whole, the same on every rank" : `${what.state ?? "held"}, rank ${what.rank}`;
  return [owner, shapeWords(what.shape), what.axis].filter(Boolean).join(" · ");
}

/** The note beside the pointer: {frame(hover)}. It stays inside the picture. */
function tipInto(svg, kit, width, height) {
  const { look } = kit, group = svgNode(svg, "g", { "pointer-events": "none", opacity: 0 });
  const ground = svgNode(group, "rect", { rx: 4, width: 0, height: 42, fill: look.paper, stroke: look.border });
  const texts = [0, 1].map((i) => svgNode(group, "text", { x: 8, y: 17 + 16 * i, "font-size": SMALL, fill: i
    ? look.muted : look.ink }, ""));
  return { frame(hover) {
    const lines = Array.isArray(hover?.lines) ? hover.lines.slice(0, 2).map((line) => fitText(line, width - 32, SMALL,
      look.font)) : [];
    const w = 16 + Math.max(0, ...lines.map((line) => textWidth(line, SMALL, look.font)));
    put(group, "opacity", lines.length ? 1 : 0);
    texts.forEach((text, i) => putText(text, lines[i] ?? ""));
    put(ground, "width", w);
    const x = Math.min(Math.max(4, (hover?.x ?? 0) + 12), Math.max(4, width - w - 4));
    const below = (hover?.y ?? 0) + 16;
    moveTo(group, lines.length ? x : 0, lines.length ? (below + 46 > height ? Math.max(0, below - 66) : below) : 0);
  } };
}

/** A frame around what a tour card speaks of: {frame(focus)}. `areas`: [{focus, x, y, w, h}]. */
function focusInto(svg, kit, areas) {
  const nodes = areas.map((area) => svgNode(svg, "rect", { x: area.x, y: area.y, width: Math.max(0, area.w),
    height: Math.max(0, area.h), rx: 6,
    fill: "none", stroke: kit.look.ink, "stroke-width": 2, "stroke-opacity": 0.6, "pointer-events": "none",
      opacity: 0 }));
  return { frame(focus) {
    nodes.forEach((node, i) => put(node, "opacity", focus && areas[i].focus === focus ? 1 : 0));
  } };
}
