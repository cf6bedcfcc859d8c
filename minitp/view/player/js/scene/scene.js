// The picture of one moment of a run: a pure function of (model, state, width), drawn with kept nodes.

/**
 * {draw(state, width) → height, describe(state) → text, destroy()}. Structure is rebuilt when the sync, the width or
 * the theme changes; between frames only attributes do. `state.hover`: what the pointer is on; `state.focus`: a card's.
 */
function createScene(svg, model, host) {
  svg.endScene?.();                                    // a host may draw a new scene into the same node
  let picture = null, latest = 0;
  const pointer = pointerInto(svg, host, () => latest);
  const draw = (state, width) => {
    width = Math.round(clamp(Number(width) || 0, 320, 2400));
    latest = state.sync;
    const look = lookOf(host.theme), sync = model.sync(state.sync), index = pickedIndex(sync, state);
    const key = [state.sync, width, look.key, width < NARROW ? state.lane : "", state.toggle, index].join("|");
    if (picture?.key !== key) {
      picture = { key, ...buildPicture(svg, { model, sync, look, width, state, index, know: pointer.know }) };
    }
    picture.frame(state);
    return picture.height;
  };
  const destroy = () => {
    pointer.end();
    svg.replaceChildren();
    picture = null;
  };
  svg.endScene = destroy;
  return { draw, describe: (state) => describeMoment(model, state), destroy };
}

/** The element that the equation is about: the pinned one, where its exact terms are known; else 0. */
function pickedIndex(sync, { pinned }) {
  const index = pinned?.kind === "term" || pinned?.kind === "out" ? pinned.index : 0;
  if (!Number.isInteger(index) || index <= 0) return 0;
  return sync.times.every((_, rank) => termValue(sync, rank, index) !== null) ? index : 0;
}

/** Everything that stays between frames: {height, frame(state)}. */
function buildPicture(svg, o) {
  const { look, sync, width, index } = o;
  svg.replaceChildren();
  svg.kept = {};
  put(svg, "font-family", look.font);
  hatchPattern(svgNode(svg, "defs", {}), look);
  const make = (level) => {
    const kit = sceneKit(o.model, sync, look, level, o.know);
    return { kit, spec: sceneSpec(kit) };
  };
  const { spec, kit, layout } = fitScene(make, o.model, look, width);
  spec.decimals = equationDecimals(kit.ranks.map((rank) => termValue(sync, rank, index) ?? 0), sumValue(sync, index));
  const parts = (width < NARROW ? narrowPicture : widePicture)(svg, kit, spec, layout, o);
  const height = Math.ceil(parts.height / GRID) * GRID, blocks = spec.columns.flatMap((column) => column.lanes);
  const hasWholes = blocks.some((block) => leavesOf(block).some((leaf) => leaf.block.whole));
  const focus = focusInto(svg, kit, parts.areas), tip = tipInto(svg, kit, width, height);
  put(svg, "viewBox", `0 0 ${width} ${height}`);
  put(svg, "width", width);
  put(svg, "height", height);
  return { height, frame(state) {
    const moment = momentOf(sync, hasWholes ? state : { ...state, cut: 1 });
    parts.frame(moment, state.hover ?? state.pinned ?? null, state.pinned ?? null);
    focus.frame(moment.cut < 1 ? "" : state.focus);       // areas frame lanes, and whole matrices lie across them
    tip.frame(state.hover);
  } };
}

/**
 * Which scene shows this sync: {stages, columns: [{symbol, short, shape, state, lead, focus, lanes: [block]}], gate:
 * {kind, symbol, word}, result: a column, feeds, inset, says}. gate.kind: sum, concat, cut (a sum that is cut), fan (a
 * source and its arrows), none. A column's blocks light up in `stages` steps.
 */
function sceneSpec(kit) {
  const { op, part, layer } = kit.sync, inLayer = { attention: attentionScene, mlp: mlpScene, block: blockScene }[part];
  if (op === "scatter" || op === "broadcast") return sourceScene(kit);
  if (inLayer && layer >= 0 && op === "all_reduce") return inLayer(kit);
  if (part === "sample" && op === "all_gather") return sampleScene(kit);
  const atEnd = { embedding: embeddingScene, head: headScene }[part];
  return atEnd && ["all_reduce", "all_gather", "reduce_scatter"].includes(op) ? atEnd(kit) : genericScene(kit);
}
