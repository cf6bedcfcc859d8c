// The picture of one moment of a run: a pure function of (model, state, width), drawn with kept nodes.

/**
 * {draw(state, width) → height, prepare(state, width) → ready, describe(state) → text, destroy()}. Structure is rebuilt
 * when the sync, the width or the theme changes; between frames only attributes do. `prepare` builds a little of the
 * picture of `state`, so that it is there when it is drawn. `state.hover`: what the pointer is on; `state.focus`: a
 * card's.
 */
function createScene(svg, model, host) {
  svg.endScene?.();                                    // a host may draw a new scene into the same node
  let picture = null, coming = null, latest = 0, look = null, theme = null;
  const pointer = pointerInto(svg, host, () => latest);
  const asked = (state, wanted) => {
    const width = Math.round(clamp(Number(wanted) || 0, 320, 2400));
    if (theme !== host.theme) look = lookOf(theme = host.theme);
    const sync = model.sync(state.sync), index = pickedIndex(sync, state);
    const key = [state.sync, width, look.key, width < NARROW ? state.lane : "", state.toggle, index].join("|");
    return { key, o: { model, sync, look, width, state, index, know: pointer.know } };
  };
  const begun = ({ key, o }) => (coming?.key === key ? coming : { key, steps: pictureSteps(o), made: null });
  const step = (one) => {
    one.made ??= one.steps.next().value ?? null;
    return one.made;
  };
  const prepare = (state, width) => {
    const wanted = asked(state, width), isNew = coming?.key !== wanted.key;
    coming = begun(wanted);
    return !isNew && Boolean(step(coming));            // the frame that shows a new picture has enough to do
  };
  const draw = (state, width) => {
    const wanted = asked(state, width);
    latest = state.sync;
    if (picture?.key !== wanted.key) {
      const next = begun(wanted);
      while (!step(next));
      picture = { key: wanted.key, ...next.made };
      showPicture(svg, picture, wanted.o);
    }
    picture.frame(state);
    return picture.height;
  };
  const destroy = () => {
    pointer.end();
    svg.replaceChildren();
    picture = coming = null;
  };
  svg.endScene = destroy;
  return { draw, prepare, describe: (state) => describeMoment(model, state), destroy };
}

/** The element that the equation is about: the pinned one, where its exact terms are known; else the example. */
function pickedIndex(sync, { pinned }) {
  const index = pinned?.kind === "term" || pinned?.kind === "out" ? pinned.index : 0;
  if (!Number.isInteger(index) || index <= 0) return entryOf(sync.slot);
  return sync.times.every((_, rank) => termValue(sync, rank, index) !== null) ? index : entryOf(sync.slot);
}

function showPicture(svg, { root, height }, { look, width }) {
  svg.replaceChildren(root);
  svg.kept = {};
  const attributes = { "font-family": look.font, viewBox: `0 0 ${width} ${height}`, width, height };
  for (const name in attributes) put(svg, name, attributes[name]);
}

/**
 * Everything that stays between frames, in steps short enough for a frame each: the layout, one picture of weights
 * after the other, the nodes lane by lane. Yields null, and at last {root, height, frame(state)}.
 */
function* pictureSteps(o) {
  const { look, sync, width, index } = o, root = groupInto(null);
  hatchPattern(svgNode(root, "defs", {}), look);
  const make = (level) => {
    const kit = sceneKit(o.model, sync, look, level, o.know);
    return { kit, spec: sceneSpec(kit) };
  };
  const { spec, kit, layout } = yield* fitScene(make, o.model, look, width);
  yield null;
  const blocks = spec.columns.flatMap(({ lanes }) => lanes.flatMap((lane) => leavesOf(lane).map(({ block }) => block)));
  for (const { warm } of blocks) {
    if (warm) yield warm();
  }
  const terms = kit.ranks.map((rank) => termValue(sync, rank, index) ?? 0);
  spec.decimals = spec.gate.kind === "max" ? decimalsFor(terms) : equationDecimals(terms, sumValue(sync, index));
  spec.decimals = Math.max(spec.decimals, spec.gate.decimals ?? 0);
  const parts = yield* (width < NARROW ? narrowPicture : widePicture)(root, kit, spec, layout, o);
  const height = Math.ceil(parts.height / GRID) * GRID, hasWholes = blocks.some((block) => block.whole);
  const focus = focusInto(root, kit, parts.areas), tip = tipInto(root, kit, width, height);
  yield { root, height, frame(state) {
    const moment = momentOf(sync, hasWholes ? state : { ...state, cut: 1 });
    parts.frame(moment, state.hover ?? state.pinned ?? null, state.pinned ?? null);
    focus.frame(moment.cut < 1 ? "" : state.focus);       // areas frame lanes, and whole matrices lie across them
    tip.frame(state.hover);
  } };
}

/**
 * Which scene shows this sync: {stages, columns: [{symbol, short, shape, state, lead, focus, lanes: [block]}], gate:
 * {kind, symbol, word}, result: a column, feeds, inset, says, backward}. gate.kind: sum, max, concat, cut (a sum that
 * is cut), fan (a source and its arrows), none. A column's blocks light up in `stages` steps. backward: right to left.
 */
function sceneSpec(kit) {
  const spec = specOf(kit);
  return kit.sync.among ? amongMany(kit, spec) : spec;
}

/** Where a lane stands for the devices that meet: lanes of others have nothing here, and nobody speaks of ranks. */
function amongMany(kit, spec) {
  const said = (text) => text?.replaceAll("every rank", "every device"), { times } = kit.sync;
  const only = (column) => ({ ...column, state: said(column.state), lanes: column.lanes.map((lane, rank) =>
    (times[rank].present ? lane : emptyBlock(kit, rank, "", 0, 96))) });
  return { ...spec, names: kit.model.lanes, says: said(spec.says), columns: spec.columns.map(only),
    result: only(spec.result) };
}

function specOf(kit) {
  if (!kit.config.layers) return kit.sync.op === "scatter" || kit.sync.op === "broadcast" ? sourceScene(kit)
    : genericScene(kit);                               // of a model that isn't known nothing more can be drawn
  const { op, part, layer } = kit.sync, inLayer = {
    attention: attentionScene, mlp: mlpScene, block: blockScene,
    d_attention: attentionBackScene, d_mlp: mlpBackScene, d_block: blockBackScene,
  }[part];
  if (op === "scatter" || op === "broadcast") return sourceScene(kit);
  if (inLayer && layer >= 0 && op === "all_reduce") return inLayer(kit);
  if (part === "loss" && /^all_reduce/.test(op)) return lossScene(kit);
  if (part === "sample" && op === "all_gather") return sampleScene(kit);
  const atEnd = { embedding: embeddingScene, head: headScene, d_head: headBackScene, copies: copiesScene,
    norm: normScene }[part];
  return atEnd && ["all_reduce", "all_gather", "reduce_scatter"].includes(op) ? atEnd(kit) : genericScene(kit);
}
