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
    width = Math.round(Math.min(2400, Math.max(320, Number(width) || 320)));
    latest = state.sync;
    const look = lookOf(host.theme), sync = model.sync(state.sync), index = pickedIndex(sync, state);
    const key = [state.sync, width, look.key, width < NARROW ? state.lane : "", state.toggle, index].join("|");
    if (picture?.key !== key) picture = buildPicture(svg, { model, sync, look, width, state, index, know: pointer.know,
      key });
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
function pickedIndex(sync, state) {
  const pinned = state.pinned, index = pinned && ["term", "out"].includes(pinned.kind) ? pinned.index : 0;
  const known = Number.isInteger(index) && index > 0 && sync.times.every((_, rank) => termValue(sync, rank,
    index) !== null);
  return known ? index : 0;
}

function buildPicture(svg, o) {
  svg.replaceChildren();
  svg.kept = {};
  const { look, width, index } = o;
  put(svg, "font-family", look.font);
  hatchPattern(svgNode(svg, "defs", {}), look);
  const { spec, kit, layout } = fitScene((level) => {
    const kit = sceneKit(o.model, o.sync, look, level, o.know);
    return { kit, spec: sceneSpec(kit) };
  }, o.model, look, width);
  spec.decimals = equationDecimals(kit.ranks.map((rank) => termValue(o.sync, rank, index) ?? 0), sumValue(o.sync,
    index));
  const parts = (width < NARROW ? narrowPicture : widePicture)(svg, kit, spec, layout, o);
  const height = Math.ceil(parts.height / GRID) * GRID;
  const cuttable = spec.columns.some((column) => column.lanes.some((block) => leavesOf(block, 0,
    0).some((leaf) => leaf.block.whole)));
  const focus = focusInto(svg, kit, parts.areas), tip = tipInto(svg, kit, width, height);
  put(svg, "viewBox", `0 0 ${width} ${height}`);
  put(svg, "width", width);
  put(svg, "height", height);
  return { key: o.key, height, frame(state) {
    const moment = momentOf(o.sync, cuttable ? state : { ...state, cut: 1 });
    parts.frame(moment, state.hover ?? state.pinned ?? null, state.pinned ?? null);
    focus.frame(state.focus);
    tip.frame(state.hover);
  } };
}

/** Which scene shows this sync. */
function sceneSpec(kit) {
  const { op, part } = kit.sync, scenes = { embedding: embeddingScene, attention: attentionScene, mlp: mlpScene,
    block: blockScene,
    head: headScene, sample: sampleScene };
  if (op === "scatter" || op === "broadcast") return sourceScene(kit);
  if (part === "embedding" || part === "head") return ["all_reduce", "all_gather", "reduce_scatter"].includes(op)
    ? scenes[part](kit)
    : genericScene(kit);
  if (part === "sample") return op === "all_gather" ? sampleScene(kit) : genericScene(kit);
  return op === "all_reduce" && kit.sync.layer >= 0 && scenes[part] ? scenes[part](kit) : genericScene(kit);
}
