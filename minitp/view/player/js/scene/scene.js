// The picture of one moment of a run: a pure function of (model, state, width), drawn with kept nodes.

/** {draw(state, width) → height, describe(state) → text, destroy()}. Only structure is rebuilt, when the sync changes. */
function createScene(svg, model, host) {
  let picture = null, last = null, hovered = null;
  const known = new WeakMap();
  const know = (node, what, box) => known.set(node, { what, box });

  const draw = (state, width) => {
    width = Math.round(Math.min(2400, Math.max(320, Number(width) || 320)));
    const look = lookOf(host.theme), sync = model.sync(state.sync);
    const narrow = width < NARROW, index = pickedIndex(state);
    const key = [state.sync, width, look.key, narrow ? state.lane : "", state.toggle, index].join("|");
    if (!picture || picture.key !== key) picture = buildPicture(svg, { model, sync, look, width, state, index, know, key });
    last = { state, width };
    picture.frame(state, hovered);
    return picture.height;
  };

  const whatAt = (event) => {
    for (let node = event.target; node && node !== svg; node = node.parentNode) {
      const found = known.get(node);
      if (found) return { found, node };
    }
    return null;
  };
  const over = (event) => {
    const hit = whatAt(event), what = hit ? { ...hit.found.what } : null;
    if (sameWhat(what, hovered)) return;
    hovered = what;
    host.hover?.(what);
    if (last) draw(last.state, last.width);
  };
  const leave = () => {
    hovered = null;
    host.hover?.(null);
    if (last) draw(last.state, last.width);
  };
  const click = (event) => {
    const hit = whatAt(event);
    if (!hit) return;
    if (hit.found.what.kind === "gate") host.open?.(last.state.sync);
    else host.pin?.({ ...hit.found.what });
  };
  svg.addEventListener("pointermove", over);
  svg.addEventListener("pointerleave", leave);
  svg.addEventListener("click", click);
  return {
    draw,
    describe: (state) => describeMoment(model, state),
    destroy() {
      svg.removeEventListener("pointermove", over);
      svg.removeEventListener("pointerleave", leave);
      svg.removeEventListener("click", click);
      svg.replaceChildren();
      picture = null;
    },
  };
}

const pickedIndex = (state) => (state.pinned && Number.isInteger(state.pinned.index) ? Math.max(0, state.pinned.index) : 0);

const sameWhat = (a, b) => a === b || Boolean(a && b && a.kind === b.kind && a.rank === b.rank && a.name === b.name
  && a.slot === b.slot && a.index === b.index);

function buildPicture(svg, o) {
  svg.replaceChildren();
  svg.kept ??= {};
  const { look, width, index } = o;
  put(svg, "font-family", look.font);
  const defs = svgNode(svg, "defs", {});
  hatchPattern(defs, look);
  const { spec, kit, layout } = fitScene((level) => {
    const kit = sceneKit(o.model, o.sync, look, level, o.know);
    return { kit, spec: sceneSpec(kit) };
  }, o.model, look, width);
  spec.decimals = decimalsFor([...kit.ranks.map((rank) => termValue(o.sync, rank, index) ?? 0), sumValue(o.sync, index) ?? 0]);
  const parts = widePicture(svg, kit, spec, layout, o);
  const height = Math.ceil(parts.height / GRID) * GRID;
  put(svg, "viewBox", `0 0 ${width} ${height}`);
  put(svg, "width", width);
  put(svg, "height", height);
  return { key: o.key, height, frame: (state, hovered) => parts.frame(momentOf(o.sync, state), state, hovered) };
}

/** Which scene shows this sync. */
function sceneSpec(kit) {
  return mlpScene(kit);
}

/** Lanes, blocks, gate, equation and inset of the wide layout. */
function widePicture(svg, kit, spec, layout, o) {
  const partials = layout.columns.at(-1), last = spec.columns.at(-1);
  layout.corridor = layout.gate ? { x: partials.x + partials.w + 6, w: layout.gate.x - partials.x - partials.w - 6 } : { x: 0, w: 0 };
  const ground = svgNode(svg, "g", {});
  const lanes = lanesInto(ground, kit, layout, o.sync);
  const heads = svgNode(svg, "g", {});
  headingsInto(heads, kit, layout, headingPlaces(spec, layout));
  const gateHead = layout.gate ? gateHeading(heads, kit, spec, layout) : null;
  const blocks = blocksInto(svg, kit, layout, spec);
  const gate = layout.gate ? gateInto(svg, kit, layout, spec, o.index) : null;
  const feeds = layout.feeds ? feedsInto(svg, kit, spec, layout) : null;
  const strip = svgNode(svg, "g", {});
  const stripWidth = (layout.gate ? layout.gate.x : layout.width) - 32;
  moveTo(strip, 16, layout.bottom + 12);
  const equation = equationInto(strip, kit, spec, o.state, stripWidth, o.index);
  const under = layout.bottom + 12 + Math.max(equation.height, FOOT) + 16;
  const insetGroup = svgNode(svg, "g", {});
  moveTo(insetGroup, 16, under);
  const inset = spec.inset?.length ? insetInto(insetGroup, kit, spec.inset, layout.width - 32) : { h: 0, frame() {} };
  const places = (column) => kit.ranks.map((rank) => column.lanes[rank].place);
  return {
    height: under + inset.h + GRID,
    frame(moment, state, hovered) {
      const lit = hovered ?? state.pinned;
      lanes.frame(moment, lit ? lit.rank : -1);
      put(heads, "opacity", between(moment.cut, 0.5, 1));
      kit.ranks.forEach((rank) => {
        const at = { moment, rank, stage: (s) => clamp01(moment.ranks[rank].computed * spec.stages - s),
          release: () => between(moment.release, 0.5, 1) };
        if (o.sync.broken) at.release = () => between(moment.release, 0.5, 1);
        for (const column of spec.columns) column.lanes[rank].frame(at);
        spec.result?.lanes[rank].frame(at);
      });
      gate?.frame(moment, places(last), spec.result ? spec.result.lanes.map((block) => firstPlace(block)) : null);
      gateHead?.frame(moment);
      feeds?.frame(moment);
      equation.frame(moment);
      inset.frame(lit && Number.isInteger(lit.rank) ? lit : null);
    },
  };
}

/** Where the first vector of a stacked block stands: the place that the released result flies to. */
function firstPlace(block) {
  if (!block.children) return block.place;
  const first = block.children[0], [dx, dy] = block.places[0];
  let x = block.place.x + dx, w = first.w;
  if (first.children) {
    x += first.places[1][0];
    w = first.children[1].w;
  }
  return { x, y: block.place.y + dy, w, h: first.h };
}

function headingPlaces(spec, layout) {
  const places = spec.columns.map((column, i) => ({ column, x: layout.columns[i].x,
    end: layout.columns[i + 1]?.x ?? layout.gate?.x ?? layout.result?.x ?? layout.width }));
  if (spec.result) places.push({ column: spec.result, x: layout.result.x, end: layout.feeds?.x ?? layout.width });
  return places.map((place) => ({ ...place, w: place.end - place.x - 10 }));
}

function gateHeading(parent, kit, spec, layout) {
  const { look, sync } = kit, x = layout.gate.x, w = layout.gate.w + layout.gap - 10;
  svgNode(parent, "text", { x, y: 20, "font-size": LARGE, "font-weight": 600, fill: look.ink },
    fitText(opWords(sync.op), w, LARGE, look.font, true));
  const count = svgNode(parent, "text", { x, y: 36, "font-size": SMALL, fill: look.ink }, "");
  const note = svgNode(parent, "text", { x, y: 50, "font-size": SMALL, fill: look.muted }, "");
  return { frame(moment) {
    putText(count, fitText(sync.broken ? "skipped" : kit.ranks.length === 1 ? "one rank alone"
      : `${moment.arrived} of ${moment.needed} arrived`, w, SMALL, look.font));
    putText(note, fitText(sync.broken ? "nobody waits" : moment.phase < COMBINE ? "waits for all" : spec.gate.word, w, SMALL, look.font));
  } };
}

const opWords = (op) => ({ all_reduce: "⊕ all-reduce", all_gather: "all-gather", reduce_scatter: "⊕ reduce-scatter",
  all_to_all: "all-to-all" }[op] ?? op.replaceAll("_", "-"));

function feedsInto(parent, kit, spec, layout) {
  const { look, ranks } = kit, { x } = layout.feeds, group = svgNode(parent, "g", {});
  const lines = wrapText(spec.feeds, layout.feeds.w - 8, SMALL, look.font);
  svgNode(group, "text", { x: x + 12, y: 20, "font-size": LARGE, "font-weight": 600, fill: look.ink }, "feeds");
  lines.slice(0, 3).forEach((line, i) => svgNode(group, "text", { x: x + 12, y: 36 + 14 * i, "font-size": SMALL,
    fill: look.muted }, line));
  const arrows = svgNode(group, "g", {});
  for (const rank of ranks) {
    const lane = layout.lanes[rank], y = lane.y + lane.h / 2;
    svgNode(arrows, "path", { d: `M${x + 12} ${y}H${x + 40}`, stroke: look.grey, "stroke-width": 2 });
    svgNode(arrows, "path", { d: arrowHead(x + 44, y), fill: look.grey });
  }
  return { frame(moment) {
    put(group, "opacity", between(moment.cut, 0.5, 1));
    put(arrows, "opacity", moment.phase < AFTER ? 0 : between(moment.feed, 0.7, 1));
  } };
}

function describeMoment(model, state) { return ""; }
