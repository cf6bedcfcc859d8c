// The gate of a collective: it fills as ranks arrive, then adds (or lays side by side), then lets go.

const FOOT_HIGH = 48;                        // px below the lanes, where the terms come together
const TERM_HIGH = 24;

/** The exact element `index` of a rank's input, its last row; null where only maxima are known. */
function termValue(sync, rank, index) {
  return elementOf(sync.slot("in", rank), sync.slot("first", rank), index);
}

/** The exact element of the result: of rank 0's part where it was cut after the sum. */
const sumValue = (sync, index) => elementOf(sync.slot("out", -1) ?? (sync.op === "reduce_scatter" ? sync.slot("out", 0)
  : null),
  sync.slot("sum", -1), index);

function elementOf(whole, first, index) {
  if (whole && whole.kind === "f32" && index < whole.cols && whole.rows) return whole.at(whole.rows - 1, index);
  return first && first.rows && index < first.cols ? first.at(first.rows - 1, index) : null;
}

/** What a rank's term is called inside the gate: the number that is being added, or the rank. */
function termWords(kit, spec, rank, index) {
  const term = spec.gate.kind === "sum" || spec.gate.kind === "cut" ? termValue(kit.sync, rank, index) : null;
  return term === null ? `rank ${rank}` : numberWords(term, spec.decimals);
}

/** Where the parts of an upright gate stand: a slot in each lane, the foot below the lanes. */
function gatePlaces(kit, layout, spec) {
  const { gate } = layout, pad = 8, w = gate.w - 2 * pad, h = kit.level.bare ? 16 : TERM_HIGH,
    top = layout.lanes[0].y - 4;
  const share = w / kit.ranks.length, kind = spec.gate.kind, y = layout.bottom + (FOOT_HIGH - TERM_HIGH) / 2 + 2;
  const middle = (rank) => layout.lanes[rank].y + layout.lanes[rank].h / 2;
  const whole = (rank) => ({ x: gate.x + pad, y: middle(rank) - h / 2, w, h });
  const piece = (rank) => ({ ...whole(rank), x: gate.x + pad + rank * share, w: Math.max(1, share - 2) });
  const slots = kit.ranks.map(kind === "concat" ? piece : whole);
  return {
    frame: { x: gate.x, y: top, w: gate.w, h: layout.bottom + FOOT_HIGH - top }, line: { x: gate.x, y: layout.bottom
      + 2, w: gate.w },
    slots, meet: slots.map((slot) => ({ ...slot, y, h: TERM_HIGH })), leave: kit.ranks.map(kind === "cut" ? piece
      : whole),
    foot: { x: gate.x + pad, y, w }, share,
    from: slots.map((slot) => ({ x: gate.x - 64, y: slot.y, w: slot.w, h: slot.h })),
    to: slots.map((slot) => ({ x: gate.x + gate.w + 64, y: slot.y, w: slot.w, h: slot.h })),
    plus: kit.level.bare ? [] : kit.ranks.slice(1).map((rank) => ({ x: gate.x + gate.w / 2, y: (middle(rank - 1)
      + middle(rank)) / 2 + 5 })),
  };
}

/** {frame(moment, partials, results)}: those are where the terms come from and the result goes, by rank. */
function gateInto(parent, kit, places, spec, index) {
  const { look, ranks, sync } = kit, kind = spec.gate.kind, group = svgNode(parent, "g", {}), { before: state,
    after } = gateStates(spec.gate);
  const frame = svgNode(group, "rect", { x: places.frame.x, y: places.frame.y, width: places.frame.w,
    height: places.frame.h, rx: 6,
    fill: look.paper, "fill-opacity": 0.75, stroke: look.ink, "stroke-width": sync.broken ? 1.5 : 3,
    "stroke-dasharray": sync.broken ? "2 6" : "none" });
  kit.know(frame, { kind: "gate" }, { plain: true });
  if (kind === "concat") for (const at of places.leave) barInto(group, look, at, "empty", 0);
  const slots = ranks.map((rank) => barInto(group, look, places.slots[rank], "empty", rank));
  if (kind === "sum" || kind === "cut") for (const at of sync.broken ? [] : places.plus) {
    svgNode(group, "text", { x: at.x, y: at.y, "font-size": LARGE, "font-weight": 600, "text-anchor": "middle",
      fill: look.ink }, "+");
  }
  svgNode(group, "path", { d: `M${places.line.x} ${places.line.y}h${places.line.w}`, stroke: look.ink, opacity: 0.35 });
  const foot = footInto(group, kit, spec, places, index), flying = svgNode(parent, "g", {});
  const made = (words, where, as) => ranks.map((rank) => barInto(flying, look, where[rank], as, rank, words
    && termWords(kit, spec, rank,
    index)));
  const terms = made(kind !== "concat" || places.slots[0].w > 44, places.slots, state);
  const copies = made(false, places.slots, state), released = made(false, places.leave, after);
  terms.forEach((term, rank) => kit.know(term, { kind: "term", rank, slot: "in" }, { plain: true }));
  return { frame(moment, partials, results, lit) {
    for (const rank of ranks) {
      const slot = places.slots[rank], at = moment.ranks[rank], from = partials?.[rank] ?? places.from[rank];
      put(slots[rank], "opacity", at.arrived && !sync.broken ? 0 : 1);
      termFrame(terms[rank], moment, at, from, slot, sync.broken ? results?.[rank] ?? places.to[rank] : null);
      put(terms[rank].firstChild.nextSibling, "stroke-width", lit === rank ? 4 : 2);
      copyFrame(copies[rank], moment, slot, places.meet[rank], sync.broken || ranks.length === 1 || kind === "none");
      releaseFrame(released[rank], moment, places.leave[rank], places.foot, results?.[rank] ?? places.to[rank],
        sync.broken || !results?.[rank] || (spec.gate.to && !spec.gate.to.includes(rank)));
    }
    foot.frame(moment);
    put(group, "opacity", between(moment.cut, 0.6, 1));
    put(flying, "opacity", between(moment.cut, 0.6, 1));
  } };
}

/** The states of what goes into a gate and of what comes out. */
const gateStates = ({ kind, states }) => states ?? { before: kind === "concat" ? "shard" : "partial",
  after: kind === "cut" ? "shard" : "whole" };

/** A rank's term travels from its lane into its slot; where the sum is skipped, right through. */
function termFrame(node, moment, at, from, slot, through) {
  const t = ease(at.travel), x = mix(from.x + from.w - slot.w, slot.x, t), y = mix(from.y + from.h / 2 - slot.h / 2,
    slot.y, t);
  const on = ease(clamp01(moment.combine * 0.5 + moment.release * 0.5));
  moveTo(node, through ? mix(x, through.x, on) : x, through ? mix(y, through.y + through.h / 2 - slot.h / 2, on) : y);
  put(node, "opacity", at.travel > 0 && !(through && moment.release >= 1) ? 1 : 0);
}

/** Its copy falls to the foot, where all come together: over one another (sum) or side by side (concat). */
function copyFrame(node, moment, slot, meet, idle) {
  const c = moment.combine;
  moveTo(node, meet.x, mix(slot.y, meet.y, ease(between(c, 0.05, 0.6))), 1);
  put(node, "opacity", !idle && c > 0 && c < 0.66 ? 0.9 : 0);
}

/** The result rises from the foot to a lane and goes on to where it belongs. */
function releaseFrame(node, moment, leave, foot, to, idle) {
  const rising = ease(between(moment.combine, 0.72, 1)), out = ease(clamp01(moment.release * 2));
  moveTo(node, mix(leave.x, to.x, out), mix(mix(foot.y, leave.y, rising), to.y + to.h / 2 - leave.h / 2, out));
  put(node, "opacity", !idle && moment.combine > 0.72 && moment.release < 0.5 ? 0.95 : 0);
}

/** A bar with words, at (0, 0) of its own group: paper, then the tinted bar, then the words. */
function barInto(parent, look, place, state, rank, words) {
  const node = svgNode(parent, "g", {}), line = outlineOf(look, state, rank);
  moveTo(node, place.x, place.y);
  svgNode(node, "rect", { width: place.w, height: place.h, rx: 6, fill: look.paper });
  svgNode(node, "rect", { width: place.w, height: place.h, rx: 6, fill: state === "empty" ? "none" : fillOf(look,
    state, rank),
    "fill-opacity": state === "empty" ? 0 : 0.22, stroke: line.stroke, "stroke-width": line.width,
      "stroke-dasharray": line.dash });
  if (words) {
    svgNode(node, "text", { x: place.w / 2, y: place.h / 2 + 4.5, "font-size": SMALL, "font-weight": 600,
      "text-anchor": "middle",
      fill: look.ink }, fitText(words, place.w - 4, SMALL, look.font, true));
  }
  return node;
}

/** The foot of the gate: Σ and its number, or the pieces side by side. */
function footInto(parent, kit, spec, places, index) {
  const { look, ranks, sync } = kit, { x, y, w } = places.foot, kind = spec.gate.kind;
  const empty = barInto(parent, look, { x, y, w, h: TERM_HIGH }, "empty", 0), made = svgNode(parent, "g", {});
  moveTo(made, x, y);
  svgNode(made, "rect", { width: w, height: TERM_HIGH, rx: 6, fill: kind === "sum" ? look.ink : look.paper,
    stroke: look.ink, "stroke-width": 2 });
  if (kind === "concat" || kind === "cut") for (const rank of ranks) {
    svgNode(made, "rect", { x: rank * places.share + 3, y: 4, width: Math.max(1, places.share - 6),
      height: TERM_HIGH - 8, rx: 2,
      fill: rankHue(rank), "fill-opacity": 0.55 });
  }
  if (kind === "sum" || kind === "none") {
    const sum = kind === "sum" ? sumValue(sync, index) : null;
    const words = kind === "none" ? opName(sync.op) : sum === null ? "Σ" : `Σ ${numberWords(sum, spec.decimals)}`;
    svgNode(made, "text", { x: w / 2, y: 16.5, "font-size": SMALL, "font-weight": 600, "text-anchor": "middle",
      fill: kind === "sum" ? look.paper : look.ink }, fitText(words, w - 4, SMALL, look.font, true));
  }
  const skipped = svgNode(parent, "text", { x: x + w / 2, y: y + 16, "font-size": SMALL, "text-anchor": "middle",
    fill: look.ink },
    fitText(sync.broken ? "sum skipped" : "", w, SMALL, look.font));
  return { frame(moment) {
    const there = sync.broken ? 0 : between(moment.combine, 0.55, 0.7);
    put(made, "opacity", there);
    put(empty, "opacity", sync.broken ? 0 : 1 - there);
    put(skipped, "opacity", sync.broken ? 1 : 0);
  } };
}
