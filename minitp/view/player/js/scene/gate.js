// The gate of a collective: it fills as ranks arrive, then adds (or lays side by side), then lets go.

const FOOT_HIGH = 48;                   // px below the lanes, where the terms come together
const TERM_HIGH = 24;

/** The exact element `index` of a rank's input, its last row; null where only maxima are known. */
const termValue = (sync, rank, index) => elementOf(sync.slot("in", rank), sync.slot("first", rank),
  index, entryOf(sync.slot));

/** The exact element of the result: of rank 0's part where it was cut after the sum. */
function sumValue(sync, index) {
  const out = sync.slot("out", -1) ?? (sync.op === "reduce_scatter" ? sync.slot("out", 0) : null);
  return elementOf(out, sync.slot("sum", -1), index, entryOf(sync.slot));
}

/** `first` begins with the element `begin`. */
function elementOf(whole, first, index, begin) {
  if (whole?.kind === "f32" && index < whole.cols && whole.rows) return whole.at(whole.rows - 1, index);
  const at = index - begin;
  return first?.rows && at >= 0 && at < first.cols ? first.at(first.rows - 1, at) : null;
}

/** Whether numbers come together in it: added, or the largest taken. */
const isSum = (spec) => ["sum", "cut", "max"].includes(spec.gate.kind);

/** What a rank's term is called inside the gate: the number that is being added, or the rank. */
function termWords(kit, spec, rank, index) {
  const term = isSum(spec) ? termValue(kit.sync, rank, index) : null;
  return term === null ? spec.names?.[rank] ?? `rank ${rank}` : numberWords(term, spec.decimals);
}

/**
 * Where the parts of an upright gate stand, a slot in each lane and the foot below the lanes. By rank: `slots`, where a
 * term arrives; `meet`, where it comes together with the others; `leave`, where the result sets off; `from` and `to`.
 */
function gatePlaces(kit, { gate, lanes, bottom }, spec) {
  const pad = 8, x = gate.x + pad, w = gate.w - 2 * pad, h = kit.level.bare ? 16 : TERM_HIGH, top = lanes[0].y - 4;
  const share = w / kit.ranks.length, footY = bottom + (FOOT_HIGH - TERM_HIGH) / 2 + 2;
  const middle = (rank) => lanes[rank].y + lanes[rank].h / 2, whole = (rank) => ({ x, y: middle(rank) - h / 2, w, h });
  const piece = (rank) => ({ ...whole(rank), x: x + rank * share, w: Math.max(1, share - 2) });
  const slots = kit.ranks.map(spec.gate.kind === "concat" ? piece : whole);
  const pluses = kit.level.bare ? [] : kit.ranks.slice(1);
  return {
    frame: { x: gate.x, y: top, w: gate.w, h: bottom + FOOT_HIGH - top }, line: { x: gate.x, y: bottom + 2, w: gate.w },
    slots, meet: slots.map((slot) => ({ ...slot, y: footY, h: TERM_HIGH })),
    leave: kit.ranks.map(spec.gate.kind === "cut" ? piece : whole), foot: { x, y: footY, w }, share,
    from: slots.map((slot) => ({ ...slot, x: gate.x - 64 })),
    to: slots.map((slot) => ({ ...slot, x: gate.x + gate.w + 64 })),
    plus: pluses.map((rank) => ({ x: gate.x + gate.w / 2, y: (middle(rank - 1) + middle(rank)) / 2 + 5 })),
  };
}

/** {frame(moment, partials, results, lit)}: where the terms come from and the result goes, by rank; the lit rank. */
function gateInto(parent, kit, places, spec, index) {
  const { look, ranks, sync } = kit, { kind } = spec.gate, states = gateStates(kit, spec.gate);
  const group = groupInto(parent);
  const still = gateFrameInto(group, kit, places, spec), foot = footInto(group, kit, spec, places, index);
  const flying = groupInto(parent), named = kind !== "concat" || places.slots[0].w > 44;
  const bars = (where, state, words) => ranks.map((rank) =>
    barInto(flying, look, where[rank], state, rank, words?.(rank)));
  const says = named ? (rank) => termWords(kit, spec, rank, index) : null;
  const terms = bars(places.slots, states.before, says), copies = bars(places.slots, states.before, says);
  const released = bars(places.leave, states.after);
  terms.forEach((term, rank) => kit.know(term, { kind: "term", rank, slot: "in" }));
  const staying = sync.broken || ranks.length === 1 || kind === "none";
  const gets = (rank, results) => !sync.broken && results?.[rank] && (!sync.among || sync.times[rank].present)
    && (spec.gate.to?.includes(rank) ?? true);
  return { frame(moment, partials, results, lit) {
    for (const rank of ranks) {
      const at = moment.ranks[rank], slot = places.slots[rank], to = results?.[rank] ?? places.to[rank];
      put(still[rank], "opacity", at.arrived && !sync.broken ? 0 : 1);
      put(terms[rank].bar, "stroke-width", lit === rank ? 4 : terms[rank].line);
      termFrame(terms[rank], moment, at, partials?.[rank] ?? places.from[rank], slot, sync.broken ? to : null);
      copyFrame(copies[rank], moment, slot, places.meet[rank], staying || !at.there);
      releaseFrame(released[rank], moment, places.leave[rank], places.foot, to, gets(rank, results));
    }
    foot.frame(moment);
    for (const node of [group, flying]) put(node, "opacity", between(moment.cut, 0.6, 1));
  } };
}

/** The states of what goes into a gate and of what comes out. */
const gateStates = (kit, { kind, states }) => states ?? (kit.alone ? { before: "whole", after: "whole" } : null)
  ?? { before: kind === "concat" ? "shard" : "partial", after: kind === "cut" ? "shard" : "whole" };

/** What doesn't move: the frame, the pluses, the empty slots; returns the slots. */
function gateFrameInto(group, kit, places, spec) {
  const { look, ranks, sync } = kit, { frame, line } = places;
  const node = rectInto(group, frame.x, frame.y, frame.w, frame.h, {
    rx: 6, fill: look.paper, "fill-opacity": 0.75, stroke: look.ink, "stroke-width": sync.broken ? 1.5 : 3,
    "stroke-dasharray": sync.broken ? "2 6" : "none",
  });
  kit.know(node, { kind: "gate" });
  if (spec.gate.kind === "concat") for (const at of places.leave) barInto(group, look, at, "empty", 0);
  const slots = ranks.map((rank) => barInto(group, look, places.slots[rank], "empty", rank));
  for (const at of isSum(spec) && spec.gate.kind !== "max" && !sync.broken ? places.plus : []) {
    textInto(group, look, at.x, at.y, "+", { size: LARGE, bold: true, anchor: "middle" });
  }
  svgNode(group, "path", { d: `M${line.x} ${line.y}h${line.w}`, stroke: look.ink, opacity: 0.35 });
  return slots;
}

/** A rank's term travels from its lane into its slot; where the sum is skipped, right through. */
function termFrame(node, moment, at, from, slot, through) {
  const t = ease(at.travel), on = ease(clamp01(moment.combine * 0.5 + moment.release * 0.5));
  const x = mix(from.x + from.w - slot.w, slot.x, t), y = mix(from.y + from.h / 2 - slot.h / 2, slot.y, t);
  moveTo(node, through ? mix(x, through.x, on) : x, through ? mix(y, through.y + through.h / 2 - slot.h / 2, on) : y);
  put(node, "opacity", at.there && at.travel > 0 && !(through && moment.release >= 1) ? 1 : 0);
}

/** Its copy falls to the foot, where all come together: over one another (sum) or side by side (concat). */
function copyFrame(node, { combine }, slot, meet, staying) {
  moveTo(node, meet.x, mix(slot.y, meet.y, ease(between(combine, 0.05, 0.6))));
  put(node, "opacity", !staying && combine > 0 && combine < 0.66 ? 0.9 : 0);
}

/** The result rises from the foot to a lane and goes on to where it belongs: at rest nothing covers the terms. */
function releaseFrame(node, { release }, leave, foot, to, gets) {
  const rising = ease(between(release, 0, 0.3)), out = ease(between(release, 0.3, 0.6));
  moveTo(node, mix(leave.x, to.x, out), mix(mix(foot.y, leave.y, rising), to.y + to.h / 2 - leave.h / 2, out));
  put(node, "opacity", gets && release > 0 && release < 0.6 ? 0.95 : 0);
}

/** A bar with words, at (0, 0) of its own group: paper, then the tinted bar, then the words. */
function barInto(parent, look, place, state, rank, words) {
  const node = groupInto(parent, place.x, place.y), line = outlineOf(look, state, rank), empty = state === "empty";
  rectInto(node, 0, 0, place.w, place.h, { rx: 6, fill: look.paper });
  node.line = line.width;
  node.bar = rectInto(node, 0, 0, place.w, place.h, {
    rx: 6, fill: empty ? "none" : fillOf(look, state, rank), "fill-opacity": empty ? 0 : 0.22, stroke: line.stroke,
    "stroke-width": line.width, "stroke-dasharray": line.dash,
  });
  const middle = { anchor: "middle", bold: true, room: place.w - 4 };
  if (words) textInto(node, look, place.w / 2, place.h / 2 + 4.5, words, middle);
  return node;
}

/** The foot of the gate: Σ and its number, or the pieces side by side. */
function footInto(parent, kit, spec, { foot: { x, y, w }, share }, index) {
  const { look, ranks, sync } = kit, { kind } = spec.gate, adds = kind === "sum" || kind === "max";
  const empty = barInto(parent, look, { x, y, w, h: TERM_HIGH }, "empty", 0), made = groupInto(parent, x, y);
  const sign = kind === "max" ? "max" : "Σ";
  const ground = { rx: 6, fill: adds ? look.ink : look.paper, stroke: look.ink, "stroke-width": 2 };
  rectInto(made, 0, 0, w, TERM_HIGH, ground);
  if (adds || kind === "none") {
    const sum = sumValue(sync, index), number = sum === null ? "" : ` ${numberWords(sum, spec.decimals)}`;
    const fits = (text) => textWidth(text, SMALL, look.font, true) <= w - 4;
    const words = adds ? [`${sign}${number}`, number.trim()].find(fits) ?? sign : opName(sync.op);
    textInto(made, look, w / 2, 16.5, words,
      { anchor: "middle", bold: true, room: w - 4, fill: adds ? look.paper : look.ink });
  } else for (const rank of ranks) {
    const tint = { rx: 2, fill: rankHue(rank), "fill-opacity": 0.55 };
    rectInto(made, rank * share + 3, 4, Math.max(1, share - 6), TERM_HIGH - 8, tint);
  }
  if (sync.broken) textInto(parent, look, x + w / 2, y + 16, "sum skipped", { anchor: "middle", room: w });
  return { frame(moment) {
    const there = sync.broken ? 0 : between(moment.combine, 0.55, 0.7);
    put(made, "opacity", there);
    put(empty, "opacity", sync.broken ? 0 : 1 - there);
  } };
}
