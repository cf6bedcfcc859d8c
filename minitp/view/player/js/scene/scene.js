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
  spec.decimals = equationDecimals(kit.ranks.map((rank) => termValue(o.sync, rank, index) ?? 0), sumValue(o.sync, index));
  const parts = (width < NARROW ? narrowPicture : widePicture)(svg, kit, spec, layout, o);
  const height = Math.ceil(parts.height / GRID) * GRID;
  put(svg, "viewBox", `0 0 ${width} ${height}`);
  put(svg, "width", width);
  put(svg, "height", height);
  return { key: o.key, height, frame: (state, hovered) => parts.frame(momentOf(o.sync, state), state, hovered ?? state.pinned) };
}

/** Which scene shows this sync. */
function sceneSpec(kit) {
  const { op, part } = kit.sync, scenes = { embedding: embeddingScene, attention: attentionScene, mlp: mlpScene, block: blockScene,
    head: headScene, sample: sampleScene };
  if (op === "scatter" || op === "broadcast") return sourceScene(kit);
  if (part === "embedding" || part === "head") return ["all_reduce", "all_gather", "reduce_scatter"].includes(op) ? scenes[part](kit)
    : genericScene(kit);
  if (part === "sample") return op === "all_gather" ? sampleScene(kit) : genericScene(kit);
  return op === "all_reduce" && kit.sync.layer >= 0 && scenes[part] ? scenes[part](kit) : genericScene(kit);
}

function describeMoment(model, state) { return ""; }
