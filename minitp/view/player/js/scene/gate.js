// The gate of a collective: it fills as ranks arrive, then adds (or lays side by side), then lets go.

const FOOT = 48;                        // px below the lanes, where the terms come together

/** What a rank's term is called inside the gate: the number that is being added, or the rank's name. */
function termWords(kit, spec, rank, index) {
  if (spec.gate.kind === "sum") {
    const term = termValue(kit.sync, rank, index);
    if (term !== null) return numberWords(term, spec.decimals);
  }
  return `rank ${rank}`;
}

/** The exact element `index` of a rank's input, its last row; null where only maxima are known. */
function termValue(sync, rank, index) {
  const whole = sync.slot("in", rank), first = sync.slot("first", rank);
  if (whole && whole.kind === "f32" && index < whole.cols && whole.rows) return whole.at(whole.rows - 1, index);
  return first && index < first.cols && first.rows ? first.at(first.rows - 1, index) : null;
}

function sumValue(sync, index) {
  const out = sync.slot("out", -1), sum = sync.slot("sum", -1);
  if (out && out.kind === "f32" && index < out.cols) return out.at(out.rows - 1, index);
  return sum && index < sum.cols ? sum.at(sum.rows - 1, index) : null;
}

/** Where the gate's parts stand. `slots[rank]`, `meet[rank]`: a bar's place on arrival and where all come together. */
function gatePlaces(kit, layout, spec) {
  const { ranks, level } = kit, { gate } = layout, pad = 8, height = level.bare ? 16 : 24, w = gate.w - 2 * pad;
  const top = layout.lanes[0].y - 4, foot = layout.bottom + (FOOT - 24) / 2 + 2;
  const pieces = spec.gate.kind === "concat" || spec.gate.kind === "cut";
  const share = w / ranks.length;
  const slots = ranks.map((rank) => {
    const lane = layout.lanes[rank], y = lane.y + lane.h / 2 - height / 2;
    return spec.gate.kind === "concat" ? { x: gate.x + pad + rank * share, y, w: share - 2, h: height }
      : { x: gate.x + pad, y, w, h: height };
  });
  const meet = slots.map((slot) => ({ ...slot, y: foot, h: 24 }));
  const leave = ranks.map((rank) => (spec.gate.kind === "cut"
    ? { x: gate.x + pad + rank * share, w: share - 2, h: height, y: slots[rank].y }
    : { x: gate.x + pad, w, h: height, y: slots[rank].y }));
  return { top, bottom: layout.bottom + FOOT, slots, meet, leave, foot, w, pad, pieces, share };
}

function gateInto(parent, kit, layout, spec, index) {
  const { look, ranks, sync } = kit, places = gatePlaces(kit, layout, spec), { gate } = layout;
  const group = svgNode(parent, "g", {}), alone = ranks.length === 1;
  const frame = svgNode(group, "rect", { x: gate.x, y: places.top, width: gate.w, height: places.bottom - places.top, rx: 6,
    fill: look.paper, "fill-opacity": 0.75, stroke: look.ink, "stroke-width": 3,
    "stroke-dasharray": sync.broken ? "2 6" : "none" });
  kit.know(frame, { kind: "gate" }, { plain: true });
  const slots = ranks.map((rank) => bar(group, look, places.slots[rank], "empty", rank));
  for (const rank of ranks.slice(1)) {
    const above = places.slots[rank - 1], below = places.slots[rank];
    if (spec.gate.kind !== "concat" && spec.gate.kind !== "none" && !kit.level.bare && !sync.broken) {
      svgNode(group, "text", { x: gate.x + gate.w / 2, y: (above.y + above.h + below.y) / 2 + 5, "font-size": LARGE,
        "font-weight": 600, "text-anchor": "middle", fill: look.ink }, "+");
    }
  }
  svgNode(group, "path", { d: `M${gate.x} ${layout.bottom + 2}h${gate.w}`, stroke: look.ink, "stroke-width": 1,
    opacity: 0.35 });
  const foot = footInto(group, kit, layout, spec, places, index);
  const flying = svgNode(parent, "g", {});
  const terms = ranks.map((rank) => bar(flying, look, places.slots[rank], spec.gate.kind === "concat" ? "shard" : "partial",
    rank, termWords(kit, spec, rank, index), kit));
  const copies = ranks.map((rank) => bar(flying, look, places.slots[rank], spec.gate.kind === "concat" ? "shard" : "partial",
    rank, "", kit));
  const released = ranks.map((rank) => bar(flying, look, places.leave[rank], spec.gate.kind === "cut" ? "shard" : "whole",
    rank, "", kit));
  terms.forEach((term, rank) => kit.know(term.node, { kind: "term", rank, slot: "in" }, { plain: true }));
  return {
    places,
    frame(moment, partials, results) {
      const c = moment.combine, rising = ease(between(c, 0.72, 1)), out = ease(moment.release / 0.5 > 1 ? 1 : moment.release / 0.5);
      const through = sync.broken;
      for (const rank of ranks) {
        const at = moment.ranks[rank], slot = places.slots[rank];
        const from = partials?.[rank] ?? { x: gate.x - gate.w, y: slot.y, w: slot.w, h: slot.h };
        const t = ease(at.travel), result = results?.[rank];
        const start = { x: from.x + from.w - slot.w, y: from.y + from.h / 2 - slot.h / 2 };
        let x = mix(start.x, slot.x, t), y = mix(start.y, slot.y, t), seen = at.travel > 0 ? 1 : 0;
        if (through && result) {
          x = mix(x, result.x, ease(moment.combine * 0.5 + moment.release * 0.5));
          seen = at.travel > 0 && moment.release < 1 ? 1 : 0;
        }
        moveTo(terms[rank].node, x, y);
        put(terms[rank].node, "opacity", seen);
        put(slots[rank].node, "opacity", at.arrived ? 0 : 1);
        const fall = ease(between(c, 0.05, 0.6)), falling = !through && c > 0 && c < 0.66 && !alone;
        moveTo(copies[rank].node, places.meet[rank].x, mix(slot.y, places.meet[rank].y, fall));
        put(copies[rank].node, "opacity", falling ? 0.9 : 0);
        const leave = places.leave[rank], away = result ?? { x: gate.x + gate.w + 60, y: leave.y, w: leave.w, h: leave.h };
        moveTo(released[rank].node, mix(leave.x, away.x, out), mix(mix(places.foot, leave.y, rising), away.y + away.h / 2
          - leave.h / 2, out));
        put(released[rank].node, "opacity", !through && c > 0.72 && moment.release < 0.5 ? 0.95 : 0);
      }
      foot.frame(moment);
      put(group, "opacity", between(moment.cut, 0.6, 1));
      put(flying, "opacity", between(moment.cut, 0.6, 1));
    },
  };
}

/** A bar with words, at (0, 0) of its own group. */
function bar(parent, look, place, state, rank, words, kit) {
  const node = svgNode(parent, "g", {});
  moveTo(node, place.x, place.y);
  const line = outlineOf(look, state, rank);
  svgNode(node, "rect", { width: place.w, height: place.h, rx: 6, fill: look.paper });
  svgNode(node, "rect", { width: place.w, height: place.h, rx: 6, fill: state === "empty" ? "none" : fillOf(look, state, rank),
    "fill-opacity": state === "empty" ? 0 : 0.22, stroke: line.stroke, "stroke-width": line.width,
    "stroke-dasharray": line.dash });
  if (words && kit) {
    svgNode(node, "text", { x: place.w / 2, y: place.h / 2 + 4.5, "font-size": SMALL, "font-weight": 600,
      "text-anchor": "middle", fill: look.ink }, fitText(words, place.w - 4, SMALL, look.font, true));
  }
  return { node };
}

/** The foot of the gate: Σ and its number, or the pieces side by side. */
function footInto(parent, kit, layout, spec, places, index) {
  const { look, ranks, sync } = kit, { gate } = layout, x = gate.x + places.pad, y = places.foot;
  const empty = bar(parent, look, { x, y, w: places.w, h: 24 }, "empty", 0);
  const made = svgNode(parent, "g", {});
  moveTo(made, x, y);
  svgNode(made, "rect", { width: places.w, height: 24, rx: 6, fill: spec.gate.kind === "sum" ? look.ink : look.paper,
    stroke: look.ink, "stroke-width": 2 });
  if (spec.gate.kind === "concat" || spec.gate.kind === "cut") {
    for (const rank of ranks) {
      svgNode(made, "rect", { x: rank * places.share + 2, y: 3, width: Math.max(1, places.share - 4), height: 18, rx: 2,
        fill: rankHue(rank), "fill-opacity": 0.55 });
    }
  } else if (spec.gate.kind === "sum") {
    const sum = sumValue(sync, index);
    svgNode(made, "text", { x: places.w / 2, y: 16.5, "font-size": SMALL, "font-weight": 600, "text-anchor": "middle",
      fill: look.paper }, fitText(sum === null ? "Σ" : `Σ ${numberWords(sum, spec.decimals)}`, places.w - 4, SMALL, look.font,
      true));
  }
  const skipped = sync.broken ? svgNode(parent, "text", { x: gate.x + gate.w / 2, y: y + 16, "font-size": SMALL,
    "text-anchor": "middle", fill: look.ink }, "no sum: skipped") : null;
  return { frame(moment) {
    const there = sync.broken ? 0 : between(moment.combine, 0.55, 0.7);
    put(made, "opacity", there);
    put(empty.node, "opacity", sync.broken ? 0 : 1 - there);
    if (skipped) put(skipped, "opacity", 1);
  } };
}
