// The narrow picture: one lane whose blocks flow over several rows, the gate as a band with a slot for every rank.

const CHIP = 22;

/** Sizes for one lane in `width` px. */
function narrowLevel(width) {
  const wide = width >= 640;
  return { name: "narrow", vec: wide ? 192 : 136, row: 16, rows: 12, cell: wide ? 6 : 4, tall: wide ? 112 : 96,
    wide: wide ? 224 : 136,
    lead: 28, gate: width - 2 * GRID, gutter: 0, label: 34, narrow: true };
}

function narrowPicture(svg, kit, spec, layout, o) {
  const { width } = layout, rank = Math.min(kit.ranks.length - 1, Math.max(0, Math.trunc(o.state.lane) || 0)),
    inner = width - 32;
  const ground = svgNode(svg, "g", {}), heads = svgNode(svg, "g", {}), others = svgNode(svg, "g", {}), leaves = [],
    fading = [];
  const status = chipsInto(heads, kit, rank, width);
  const top = status.bottom + GRID, flow = flowInto(svg, heads, kit, spec.columns, spec.rooted ? spec.root : rank,
    { x: 20, y: top, w: inner - 4 }, leaves, fading);
  const lane = svgNode(ground, "rect", { x: EDGE, y: top - GRID / 2, width: width - 2 * EDGE, height: flow.bottom - top
    + GRID, rx: 6,
    fill: rankHue(rank), "fill-opacity": 0.07 });
  const edge = svgNode(ground, "rect", { x: EDGE, y: top - GRID / 2, width: 6, height: flow.bottom - top + GRID, rx: 3,
    fill: rankHue(rank) });
  const hatch = svgNode(ground, "rect", { x: EDGE + 6, y: flow.bottom - GRID, width: width - 2 * EDGE - 12,
    height: GRID, fill: `url(#${HATCH})`,
    opacity: 0 });
  const bandTop = flow.bottom + GRID, gateHead = gateHeading(heads, kit, spec, { x: 16, y: bandTop, w: inner });
  const fan = spec.gate.kind === "fan", places = bandPlaces(kit, spec, { x: GRID, y: bandTop + 60,
    w: width - 2 * GRID });
  const gateGroup = svgNode(svg, "g", {});
  const resultTop = (fan ? bandTop + 60 : places.frame.y + places.frame.h) + GRID;
  const end = flowInto(svg, heads, kit, [spec.result], rank, { x: 20, y: resultTop, w: inner - 4 }, leaves, fading);
  const titles = svgNode(svg, "g", {});
  othersInto(others, kit, [...spec.columns, spec.result], rank, leaves);
  const flights = flightsInto(titles, kit, leaves, { x: 20, y: top, w: inner - 4, h: Math.max(160, end.bottom - top) });
  const pieces = fan ? piecesInto(spec, leaves, spec.source.place) : null;
  const gate = fan ? null : gateInto(gateGroup, kit, places, spec, o.index);
  const below = belowInto(svg, kit, spec, o, { x: 16, y: end.bottom + GRID * 2, w: inner, full: inner, least: 0 });
  const blocks = leavesFrame(kit, spec, leaves, fading);
  const from = kit.ranks.map((r) => (r === rank && !fan ? firstPlace(spec.columns.at(-1).lanes[r]) : null));
  const to = kit.ranks.map((r) => (r === rank ? firstPlace(spec.result.lanes[r]) : null));
  return { height: below.bottom + GRID, areas: [...below.areas, { focus: "gate", x: GRID / 2, y: bandTop,
    w: width - GRID,
    h: resultTop - bandTop - GRID / 2 }], frame(moment, lit) {
    const opacity = between(moment.cut, 0.5, 1);
    for (const node of [lane, edge]) put(node, "opacity", opacity);
    put(hatch, "opacity", isWaiting(o.sync, moment, rank) ? 0.8 : 0);
    put(heads, "opacity", opacity);
    blocks(moment, lit);
    flights.frame(moment);
    pieces?.frame(moment, kit.ranks.length);
    put(others, "opacity", fan ? 1 - between(moment.combine, 0.3, 0.8) : 1 - between(moment.cut, 0.4, 0.8));
    gate?.frame(moment, from, to, rankOf(lit));
    gateHead.frame(moment);
    status.frame(moment);
    below.frame(moment, lit);
  } };
}

/** The rank that is shown and, in chips, what the others do. */
function chipsInto(parent, kit, shown, width) {
  const { look, sync, ranks } = kit;
  svgNode(parent, "text", { x: 16, y: 20, "font-size": LARGE, "font-weight": 600, fill: look.ink }, `rank ${shown}`);
  const own = svgNode(parent, "text", { x: 16 + textWidth(`rank ${shown}`, LARGE, look.font, true) + 10, y: 20,
    "font-size": SMALL,
    fill: look.muted }, "");
  const others = ranks.filter((rank) => rank !== shown), perRow = Math.max(1, Math.floor((width - 24) / 168)),
    w = (width - 24) / perRow;
  const chips = others.map((rank, i) => {
    const group = svgNode(parent, "g", {});
    moveTo(group, 12 + (i % perRow) * w, 30 + Math.floor(i / perRow) * CHIP);
    svgNode(group, "rect", { x: 4, y: 3, width: 4, height: 15, rx: 2, fill: rankHue(rank) });
    const text = svgNode(group, "text", { x: 14, y: 15, "font-size": SMALL, fill: look.muted }, "");
    kit.know(group, { kind: "lane", rank }, { plain: true });
    return { rank, text };
  });
  return { bottom: 30 + Math.ceil(others.length / perRow) * CHIP, frame(moment) {
    putText(own, statusOf(sync, moment, shown));
    for (const { rank, text } of chips) {
      putText(text, fitText(`rank ${rank}: ${statusOf(sync, moment, rank)}`, w - 18, SMALL, look.font));
    }
  } };
}

/** Columns of one rank one after the other, over as many rows as they need: {bottom}. */
function flowInto(parent, heads, kit, columns, rank, area, leaves, fading) {
  let x = area.x, y = area.y, rowHeight = 0, first = true;
  for (const column of columns) {
    const block = column.lanes[rank], symbol = textWidth(column.symbol, LARGE, kit.look.font, true);
    const words = Math.min(172, textWidth(column.state ?? "", SMALL, kit.look.font) + 2);
    const w = Math.min(area.w, Math.max(block.w, symbol, words, 96)), lead = column.lead && !first ? kit.level.lead : 0;
    if (!first && x + lead + w > area.x + area.w) {
      x = area.x;
      y += rowHeight + GRID * 2;
      rowHeight = 0;
    } else if (lead) {
      fading.push(leadInto(parent, kit.look, column.lead, x + 4, x + lead - 4, y + 70, rank));
      x += lead;
    }
    headingsInto(heads, kit, [{ column, x, w: Math.min(w + 12, area.x + area.w - x), top: y, lines: 2 }]);
    placeBlock(parent, kit, block, x, y + 60, leaves, fading);
    rowHeight = Math.max(rowHeight, 60 + block.h);
    x += w + 4;
    first = false;
  }
  return { bottom: y + rowHeight + GRID };
}

/** Where the parts of the band stand: a slot for every rank side by side, the foot below them. */
function bandPlaces(kit, spec, area) {
  const p = kit.ranks.length, perRow = Math.min(p, Math.max(1, Math.floor(area.w / 76))), rows = Math.ceil(p / perRow),
    pad = 8;
  const w = area.w - 2 * pad, step = w / perRow, share = w / p, foot = area.y + pad + rows * (TERM_HIGH + 8) + 4;
  const slots = kit.ranks.map((rank) => ({ x: area.x + pad + (rank % perRow) * step + 2, y: area.y + pad
    + Math.floor(rank / perRow) * (TERM_HIGH + 8),
    w: step - (perRow > 1 ? 16 : 4), h: TERM_HIGH }));
  const piece = (rank) => ({ x: area.x + pad + rank * share, y: foot, w: Math.max(1, share - 2), h: TERM_HIGH });
  const whole = () => ({ x: area.x + pad, y: foot, w, h: TERM_HIGH });
  return {
    frame: { x: area.x, y: area.y, w: area.w, h: foot + TERM_HIGH + pad - area.y }, line: { x: area.x, y: foot - 5,
      w: area.w }, slots,
    meet: slots.map((slot, rank) => ({ ...slot, x: spec.gate.kind === "sum" || spec.gate.kind === "cut" ? area.x
      + area.w / 2 - slot.w / 2
      : piece(rank).x, y: foot })),
    leave: kit.ranks.map(spec.gate.kind === "cut" ? piece : whole), foot: { x: area.x + pad, y: foot, w }, share,
    from: slots.map((slot) => ({ ...slot, y: slot.y - 28 })), to: slots.map((slot) => ({ ...slot, y: foot + 40 })),
    plus: kit.ranks.slice(1).filter((rank) => rank % perRow).map((rank) => ({ x: slots[rank].x - 8, y: slots[rank].y
      + 17 })),
  };
}

/** The other ranks' parts of the matrices: there while the whole is shown, gone when each has its own. */
function othersInto(parent, kit, columns, shown, leaves) {
  for (const column of columns) {
    const own = column.lanes[shown];
    if (!own.place) continue;
    for (const rank of kit.ranks) {
      if (rank === shown) continue;
      for (const leaf of leavesOf(column.lanes[rank], own.place.x, own.place.y)) {
        if (leaf.block.kind !== "matrix") continue;
        const holder = svgNode(parent, "g", {});
        moveTo(holder, leaf.x, leaf.y);
        leaf.block.build(holder);
        leaves.push(leaf);
      }
    }
  }
}
