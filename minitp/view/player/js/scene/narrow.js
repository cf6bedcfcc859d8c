// The narrow picture: one lane whose blocks flow over several rows, the gate as a band with a slot for every rank.

const CHIP = 22;                        // height of a line about another rank
const FLOW_HEAD = 60;                   // px above a block, for its heading
const BAND_SLOT = 76;                   // px that a rank's slot needs

/** Sizes for one lane in `width` px; see LEVELS. */
function narrowLevel(width) {
  const sizes = width >= 640 ? { vec: 192, cell: 6, tall: 112, wide: 224 } : { vec: 136, cell: 4, tall: 96, wide: 136 };
  return { name: "narrow", row: 16, rows: 12, lead: 28, gate: width - 2 * GRID, gutter: 0, label: 34, ...sizes };
}

function* narrowPicture(svg, kit, spec, { width }, o) {
  const rank = clamp(Math.trunc(o.state.lane) || 0, 0, kit.ranks.length - 1), isFan = spec.gate.kind === "fan";
  const inner = width - 32, ground = groupInto(svg), heads = groupInto(svg), others = groupInto(svg);
  const leaves = [], fading = [], flow = { heads, leaves, fading, w: inner - 4 };
  const status = chipsInto(heads, kit, rank, width), top = status.bottom + GRID;
  const laneEnd = flowInto(svg, kit, spec.columns, isFan ? spec.root : rank, top, flow);
  const lane = narrowLaneInto(ground, rank, width, top, laneEnd), bandTop = laneEnd + GRID;
  const gateHead = gateHeadingInto(heads, kit, spec, { x: 16, y: bandTop, w: inner });
  const places = bandPlaces(kit, spec, { x: GRID, y: bandTop + FLOW_HEAD, w: width - 2 * GRID }), band = groupInto(svg);
  const resultTop = (isFan ? bandTop + FLOW_HEAD : places.frame.y + places.frame.h) + GRID;
  const end = flowInto(svg, kit, [spec.result], rank, resultTop, flow), titles = groupInto(svg);
  othersInto(others, kit, [...spec.columns, spec.result], rank, leaves);
  const flights = flightsInto(titles, kit, leaves, { x: 20, y: top, w: inner - 4, h: Math.max(160, end - top) });
  yield null;
  const gate = isFan ? piecesInto(spec, leaves, spec.source.place, kit.ranks.length)
    : gateInto(band, kit, places, spec, o.index);
  const below = belowInto(svg, kit, spec, o, { x: 16, y: end + GRID * 2, w: inner, full: inner, least: 0 });
  const blocks = leavesFrame(kit, spec, leaves, fading);
  const placeOf = (column) => kit.ranks.map((r) => (r === rank && !isFan ? firstPlace(column.lanes[r]) : null));
  const from = placeOf(spec.columns.at(-1)), to = placeOf(spec.result);
  const gateArea = { focus: "gate", x: GRID / 2, y: bandTop, w: width - GRID, h: resultTop - bandTop - GRID / 2 };
  return { height: below.bottom + GRID, areas: [...below.areas, gateArea], frame(moment, lit) {
    for (const node of [ground, heads]) put(node, "opacity", between(moment.cut, 0.5, 1));
    put(lane.hatch, "opacity", isWaiting(kit.sync, moment, rank) ? 0.8 : 0);
    put(others, "opacity", isFan ? 1 - between(moment.combine, 0.3, 0.8) : 1 - between(moment.cut, 0.4, 0.8));
    blocks(moment, lit);
    for (const part of [flights, gateHead, status]) part.frame(moment);
    gate.frame(moment, from, to, rankOf(lit));
    below.frame(moment, lit);
  } };
}

/** The ground of the lane. */
function narrowLaneInto(parent, rank, width, top, bottom) {
  const y = top - GRID / 2, h = bottom - top + GRID, hue = rankHue(rank);
  rectInto(parent, EDGE, y, width - 2 * EDGE, h, { rx: 6, fill: hue, "fill-opacity": 0.07 });
  rectInto(parent, EDGE, y, 6, h, { rx: 3, fill: hue });
  const hatched = { fill: `url(#${HATCH})`, opacity: 0 };
  return { hatch: rectInto(parent, EDGE + 6, bottom - GRID + 4, width - 2 * EDGE - 12, GRID, hatched) };
}

/** The rank that is shown and, in chips, what the others do: {bottom, frame(moment)}. */
function chipsInto(parent, kit, shown, width) {
  const { look, sync, ranks } = kit, perRow = Math.max(1, Math.floor((width - 24) / 168)), w = (width - 24) / perRow;
  const name = kit.model.lanes[shown] ?? `rank ${shown}`, others = ranks.filter((rank) => rank !== shown);
  textInto(parent, look, 16, 20, name, { size: LARGE, bold: true });
  const own = textInto(parent, look, 26 + textWidth(name, LARGE, look.font, true), 20, "", { muted: true });
  const chips = others.map((rank, i) => {
    const group = groupInto(parent, 12 + (i % perRow) * w, 30 + Math.floor(i / perRow) * CHIP);
    rectInto(group, 4, 3, 4, 15, { rx: 2, fill: rankHue(rank) });
    kit.know(group, { kind: "lane", rank });
    return { rank, text: textInto(group, look, 14, 15, "", { muted: true }) };
  });
  return { bottom: 30 + Math.ceil(others.length / perRow) * CHIP, frame(moment) {
    putText(own, statusOf(sync, moment, shown));
    for (const { rank, text } of chips) {
      const words = `${kit.model.lanes[rank] ?? `rank ${rank}`}: ${statusOf(sync, moment, rank)}`;
      putText(text, fitText(words, w - 18, SMALL, look.font));
    }
  } };
}

/** Columns of one rank one after the other from `top` on, over as many rows as they need; returns where they end. */
function flowInto(parent, kit, columns, rank, top, { heads, leaves, fading, w: room }) {
  const left = 20, { font } = kit.look;
  let x = left, y = top, rowHeight = 0;
  columns.forEach((column, i) => {
    const block = column.lanes[rank], symbol = textWidth(column.symbol, LARGE, font, true);
    const state = Math.min(172, textWidth(column.state, SMALL, font) + 2);
    const w = Math.min(room, Math.max(block.w, symbol, state, 96)), lead = column.lead && i ? kit.level.lead : 0;
    if (i && x + lead + w > left + room) [x, y, rowHeight] = [left, y + rowHeight + GRID * 2, 0];
    else if (lead) {
      fading.push(leadInto(parent, kit.look, column.lead, x + 4, x + lead - 4, y + FLOW_HEAD + 10, rank));
      x += lead;
    }
    headingInto(heads, kit, column, { x, y, w: Math.min(w + 12, left + room - x), most: 2 });
    placeBlock(parent, kit, block, x, y + FLOW_HEAD, leaves, fading);
    rowHeight = Math.max(rowHeight, FLOW_HEAD + block.h);
    x += w + 4;
  });
  return y + rowHeight + GRID;
}

/** Where the parts of the band stand, as `gatePlaces` says: slots side by side in rows, the foot below them. */
function bandPlaces(kit, spec, area) {
  const p = kit.ranks.length, pad = 8, perRow = Math.min(p, Math.max(1, Math.floor(area.w / BAND_SLOT)));
  const x = area.x + pad, w = area.w - 2 * pad, step = w / perRow, share = w / p, rowHigh = TERM_HIGH + 8;
  const footY = area.y + pad + Math.ceil(p / perRow) * rowHigh + 4;
  const slots = kit.ranks.map((rank) => ({ x: x + (rank % perRow) * step + 2, h: TERM_HIGH,
    y: area.y + pad + Math.floor(rank / perRow) * rowHigh, w: step - (perRow > 1 ? 16 : 4) }));
  const piece = (rank) => ({ x: x + rank * share, y: footY, w: Math.max(1, share - 2), h: TERM_HIGH });
  const whole = () => ({ x, y: footY, w, h: TERM_HIGH }), middle = (slot) => area.x + area.w / 2 - slot.w / 2;
  return {
    frame: { ...area, h: footY + TERM_HIGH + pad - area.y }, line: { x: area.x, y: footY - 5, w: area.w }, slots,
    meet: slots.map((slot, rank) => ({ ...slot, x: isSum(spec) ? middle(slot) : piece(rank).x, y: footY })),
    leave: kit.ranks.map(spec.gate.kind === "cut" ? piece : whole), foot: { x, y: footY, w }, share,
    from: slots.map((slot) => ({ ...slot, y: slot.y - 28 })), to: slots.map((slot) => ({ ...slot, y: footY + 40 })),
    plus: slots.filter((_, rank) => rank % perRow).map((slot) => ({ x: slot.x - 8, y: slot.y + 17 })),
  };
}

/** The other ranks' parts of the matrices: there while the whole is shown, gone when each has its own. */
function othersInto(parent, kit, columns, shown, leaves) {
  for (const { lanes } of columns.filter((column) => column.lanes[shown].place)) {
    const { x, y } = lanes[shown].place, rest = lanes.filter((_, rank) => rank !== shown);
    for (const leaf of rest.flatMap((block) => leavesOf(block, x, y)).filter(({ block }) => block.kind === "matrix")) {
      leaf.block.build(groupInto(parent, leaf.x, leaf.y));
      leaves.push(leaf);
    }
  }
}
