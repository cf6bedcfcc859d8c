// The pass as a string of beads, one a sync point, grouped by layer. The shape tells the collective; one that was
// skipped on purpose is crossed out, one that never ended has a dashed outline.

const BEADS = {                                        // in a box of 2 × 2 around the origin
  sum: "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z", concat: "M-.9-.9H.9V.9H-.9Z", cut: "M-1 .85L0-1 1 .85Z",
  copy: "M0-1.15L1.15 0 0 1.15-1.15 0Z", "sum and cut": "M-1.1-.8H1.1L.5.9H-.5Z", exchange: "M-1-.9L1 .9V-.9L-1 .9Z",
  max: "M-1 .4L0-1L1 .4L.6 1L0 .1L-.6 1Z", wait: "M-.35-1H.35V1H-.35Z", message: "M-1-.35H1V.35H-1Z",
};
const PITCHES = [24, 20, 16, 14, 12, 10];              // px from bead to bead, the widest that fits one line
const INSET = 4;                                        // room for the ring around the first bead
const CROSS = "M-1.2-1.2L1.2 1.2M1.2-1.2L-1.2 1.2";

function createBeads(box, model, act) {
  const svg = svgElement("svg", { class: "string", "aria-hidden": "true" });
  const strings = svgElement("g", { class: "thread" }), labels = svgElement("g", { class: "labels" });
  const nodes = svgElement("g"), ring = svgElement("circle", { class: "ring" });
  svg.append(strings, labels, nodes, ring);
  box.replaceChildren(svg);
  box.addEventListener("click", event => {
    const bead = event.target.closest("[data-k]");
    if (bead) act.open(Number(bead.dataset.k));
  }, { signal: act.signal });

  let laid = null, key = "", marks = [], at = -1;
  return function draw({ state, width }) {
    const pass = model.passes[model.sync(state.sync).pass], now = state.sync - pass.first;
    if (key !== `${pass.index} ${width}`) {
      key = `${pass.index} ${width}`;
      laid = layBeads(model, pass, width);
      hang(svg, { strings, labels, nodes }, laid, model, pass);
      marks = new Array(pass.count);
      at = -1;
    }
    if (at === (at = now)) return;
    setAttribute(ring, "transform", `translate(${laid.at[now].join(" ")})`);
    setAttribute(ring, "r", laid.radius + 4);
    for (let index = 0; index < pass.count; index++) {
      const mark = index < now ? "past" : index > now ? "coming" : "current";
      if (marks[index] !== mark) nodes.children[index].setAttribute("class", marks[index] = mark);
    }
  };
}

// Where every bead of a pass hangs: {at: [[x, y]…], radius, groups: [{text, x, y, to}], width, height}.
function layBeads(model, pass, width) {
  const groups = beadGroups(model, pass), pitch = PITCHES.find(pitch => lineWidth(groups, pitch) <= width) || 9;
  const row = pitch < 12 ? 32 : 40, laid = { at: [], radius: clamp(pitch / 2 - 2, 3, 8), groups: [], width };
  let x = INSET, y = 24;
  for (const { text, count } of groups) {
    const wide = groupWidth({ text, count }, pitch);
    if (x > INSET && x + wide > width) [x, y] = [INSET, y + row];
    const group = { text, x: x + pitch / 2 - laid.radius, y, from: x + pitch / 2, to: x + pitch / 2 };
    laid.groups.push(group);
    let along = x;
    for (let i = 0; i < count; i++, along += pitch) {
      if (along > INSET && along + pitch > width) [along, y] = [INSET, y + 24];
      laid.at.push([along + pitch / 2, y]);
      if (y === group.y) group.to = along + pitch / 2;
    }
    x = Math.max(along, y === group.y ? x + wide : 0) + Math.max(pitch / 2, 6);
  }
  return { ...laid, height: y + 16 };
}

function groupWidth({ text, count }, pitch) {
  return Math.max(count * pitch, 7 * text.length + 4);
}

function lineWidth(groups, pitch) {
  return INSET + groups.reduce((sum, group) => sum + groupWidth(group, pitch) + Math.max(pitch / 2, 6), 0);
}

// Runs of syncs of one layer; what belongs to none goes by its part. The first layer says that its number is one.
function beadGroups(model, pass) {
  const groups = [];
  for (let k = pass.first; k < pass.first + pass.count; k++) {
    const sync = model.sync(k), last = groups[groups.length - 1];
    const own = sync.part === "load" ? shortened(sync.site.replace(/\.weight$/, ""), 16) : partName(sync.part);
    const isFirst = sync.layer >= 0 && !groups.some(group => group.layer >= 0);
    const text = sync.layer < 0 ? own : isFirst ? `layer ${sync.layer}` : String(sync.layer);
    if (last && last.layer === sync.layer && (sync.layer >= 0 || last.text === own)) last.count += 1;
    else groups.push({ layer: sync.layer, count: 1, text });
  }
  return groups;
}

function hang(svg, { strings, labels, nodes }, laid, model, pass) {
  for (const [name, value] of Object.entries({ width: laid.width, height: laid.height })) svg.setAttribute(name, value);
  labels.replaceChildren(...laid.groups.map(({ text, x, y }) => svgElement("text", { x, y: y - 14 }, text)));
  strings.replaceChildren(...laid.groups.map(({ from, to, y }) => svgElement("path", { d: `M${from} ${y}H${to}` })));
  nodes.replaceChildren(...laid.at.map(([x, y], index) => bead(model.sync(pass.first + index), x, y, laid.radius)));
}

function bead(sync, x, y, radius) {
  const node = svgElement("g", { "data-k": sync.index, transform: `translate(${x} ${y}) scale(${radius})` });
  node.append(svgElement("title", {}, `${sync.site}: ${opName(sync.op)}${sync.broken ? ", skipped on purpose" : sync.never ? ", never ended" : ""}`));
  node.append(svgElement("path", { class: "area", d: "M-1.3-2H1.3V2H-1.3Z" }));
  node.append(svgElement("path", { class: sync.never ? "bead never" : "bead", d: BEADS[opKind(sync.op)] || BEADS.message }));
  if (sync.broken) node.append(svgElement("path", { class: "cross", d: CROSS }));
  return node;
}
