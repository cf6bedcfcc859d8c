// The player of one play in one element: state, parts, and the one loop that draws them.

const NARROW = 900;                                    // px: below it one lane at a time

// host: {open(sync), link(keys) -> text}. Returns {act, retheme, model, state, destroy}.
function createPlayer(root, play, host) {
  const model = decodePlay(play), ending = new AbortController();
  const parts = Object.fromEntries(Array.from(root.querySelectorAll("[data-part]"), node => [node.dataset.part, node]));
  setText(parts.banner, (model.run.banner || []).join(" "));
  if (!model.n) return emptyPlayer(root, parts, ending);
  const calm = matchMedia("(prefers-reduced-motion: reduce)"), motion = createMotion();
  let state = initialState(model), shown = state, frame = 0, later = 0, before = 0, hover = null;

  const act = action => {
    const asked = reduce(model, state, action);
    if (asked === state) return;
    const isStill = action.jump || calm.matches || state.playing;
    state = asked;
    motion.aim(performance.now(), shown, state, isStill);
    wake();
  };
  Object.assign(act, { signal: ending.signal, state: () => state, draw: () => wake(), open: k => openSync(k) });
  const openSync = k => {
    act({ type: "seek", sync: k, phase: state.phase, t: state.t });
    host.open(k);
  };
  const view = {
    theme: readTheme(root), open: openSync, pin: what => act({ type: "pin", what }),
    hover: what => { hover = what; wake(); },
  };
  setText(parts.notes, (model.run.notes || []).join(" "));
  const draws = mountParts(root, parts, model, act, view);
  let scene = createScene(parts.scene, model, view);

  function wake() {
    if (!frame && !ending.signal.aborted) frame = requestAnimationFrame(paint);
  }
  function paint(now) {
    frame = 0;
    if (state.playing && before) state = reduce(model, state, { type: "tick", ms: Math.min(now - before, 100) });
    before = state.playing ? now : 0;
    shown = motion.at(now, state, model.n);
    if (state.playing && calm.matches) shown = { ...shown, t: 1 };
    drawAll();
    if (state.playing || motion.moving()) wake();
    lookAhead();
  }
  // A piece of the next sync's picture after every frame, and at rest one after the other: to go there costs no frame.
  function lookAhead() {
    clearTimeout(later);
    if (ending.signal.aborted || state.sync + 1 >= model.n) return;
    const isReady = scene.prepare({ ...state, sync: state.sync + 1 }, sceneWidth());
    if (!isReady && !frame) later = setTimeout(lookAhead, 16);
  }
  function sceneWidth() {
    return Math.floor(parts.stage.clientWidth);
  }
  function drawAll() {
    const width = sceneWidth(), card = model.tour[state.card];
    const all = { state, shown, width };
    root.classList.toggle("narrow", width < NARROW);
    for (const draw of draws) draw(all);
    const height = scene.draw({ ...shown, hover, focus: card ? card.focus : "" }, width);
    setAttribute(parts.scene, "width", width);
    setAttribute(parts.scene, "height", Math.ceil(height));
    keepTallest(parts.stage, width, Math.ceil(height));
    setAttribute(parts.scene, "aria-label", scene.describe(state));
    setAttribute(root, "data-focus", card ? card.focus : "");
    setAttribute(root, "data-state", stateWords(model, state));
  }
  function retheme() {
    view.theme = readTheme(root);
    parts.scene.replaceChildren();
    scene = createScene(parts.scene, model, view);
    wake();
  }
  const sizes = new ResizeObserver(wake);
  sizes.observe(parts.stage);
  listen(root, act, extraButtons(parts, model, act, host, view));
  wake();
  return {
    act, retheme, model, state: () => state,
    destroy() {
      ending.abort();
      sizes.disconnect();
      cancelAnimationFrame(frame);
      parts.scene.replaceChildren();
    },
  };
}

// The stage is as tall as its tallest scene so far: what lies below it stays where it is from step to step.
function keepTallest(stage, width, height) {
  const kept = stage.dataset.width === String(width) ? parseFloat(stage.style.minHeight) || 0 : 0;
  stage.dataset.width = width;
  if (height > kept || !kept) stage.style.minHeight = `${height}px`;
}

// For tests: token is the pass in this play, sync the number in it.
function stateWords(model, { sync, phase, playing, clock }) {
  return `token=${model.sync(sync).pass};sync=${sync};phase=${phase};playing=${Number(playing)};clock=${clock}`;
}

function mountParts(root, parts, model, act, view) {
  createLegend(parts.legend, model);
  return [
    createHeader(parts, model), createTokens(parts.tokens, model, act), createBeads(parts.beads, model, act),
    createTour(parts, model, act), createControls(root, parts, model, act), createScrubber(parts, model, act, view),
  ];
}

// What buttons do that is not a change of state alone.
function extraButtons(parts, model, act, host, view) {
  const tell = text => setText(parts.told, text);
  const card = by => {
    const index = act.state().card + by;
    act({ type: "card", index: index < model.tour.length ? index : null });
  };
  const save = async kind => {
    const picture = pictureOf(parts.scene, parts.where.textContent, parts.caption.textContent, view.theme);
    const { token, sync } = keysOf(model, act.state());
    try {
      await savePicture(kind, picture, `minitp-token-${token}-sync-${sync}`);
      tell("Picture saved.");
    } catch {
      tell("This browser can't turn the picture into that kind of file. Try the other one.");
    }
  };
  return {
    tour: () => act({ type: "card", index: act.state().card ?? 0 }),
    "card-next": () => card(1), "card-back": () => card(-1), "card-leave": () => act({ type: "card", index: null }),
    detail: () => act.open(act.state().sync),
    png: () => save("png"), svg: () => save("svg"),
    link: async () => tell(await copyText(host.link(keysOf(model, act.state())))),
  };
}

function emptyPlayer(root, parts, ending) {
  setText(parts.where, "Nothing to watch");
  setText(parts.caption, "This run recorded no sync point: one rank alone, a run that failed before anything moved, or a "
    + "trace without collectives.");
  root.classList.add("empty");
  return { act() {}, retheme() {}, model: null, state: () => null, destroy: () => ending.abort() };
}
