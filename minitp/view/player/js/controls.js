// Buttons and keys: one table of actions for both.

const BUTTONS = {
  home: { type: "home" }, end: { type: "end" }, back: { type: "sync", by: -1 }, next: { type: "sync", by: 1 },
  "token-back": { type: "token", by: -1 }, "token-next": { type: "token", by: 1 },
  "phase-back": { type: "phase", by: -1 }, "phase-next": { type: "phase", by: 1 },
  "layer-down": { type: "layer", by: -1 }, "layer-up": { type: "layer", by: 1 },
  play: { type: "play" }, "speed-1": { type: "speed", value: 1 }, "speed-2": { type: "speed", value: 2 },
  "speed-4": { type: "speed", value: 4 },
  clock: { type: "clock" }, cut: { type: "cut" }, toggle: { type: "toggle" },
};
const KEYS = {
  ArrowRight: "next", ArrowLeft: "back", ArrowUp: "layer-up", ArrowDown: "layer-down", Home: "home", End: "end",
  " ": "play", ".": "phase-next", ",": "phase-back", 1: "speed-1", 2: "speed-2", 4: "speed-4",
  c: "clock", x: "cut", a: "toggle",
};
const SHIFTED = { ArrowRight: "token-next", ArrowLeft: "token-back" };

// The action of a key, or null: keys of a field, of the browser and of a focused button stay theirs.
function actionOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return null;
  const target = event.target;
  if (target.closest("input, textarea, select, [contenteditable]")) return null;
  if (event.key === " " && target.closest("button, a")) return null;
  if (event.key === "Escape") return { type: "unpin" };
  const name = event.shiftKey && SHIFTED[event.key] || KEYS[event.key];
  return name ? BUTTONS[name] : null;
}

function listen(root, act, extra) {
  root.addEventListener("keydown", event => {
    const isDetail = event.key === "Enter" && event.target === root;
    const action = isDetail ? null : actionOf(event);
    if (isDetail) extra.detail();
    if (!action) return;
    event.preventDefault();
    event.stopPropagation();                           // the page around has keys of its own
    act(action);
  }, { signal: act.signal });
  root.addEventListener("click", event => {
    const button = event.target.closest("[data-act]");
    if (!button) return;
    const name = button.dataset.act;
    if (BUTTONS[name]) act(BUTTONS[name]); else if (extra[name]) extra[name]();
  }, { signal: act.signal });
}

function createControls(root, parts, model, act) {
  const found = Array.from(root.querySelectorAll("[data-act]"), button => [button.dataset.act, button]);
  const buttons = Object.fromEntries(found);
  const lanes = Array.from({ length: model.ranks }, (_, rank) => {
    const button = element("button", { type: "button", class: "lane" }, model.lanes[rank] ?? `rank ${rank}`);
    button.style.setProperty("--hue", rankHue(rank));
    button.addEventListener("click", () => act({ type: "lane", rank }), { signal: act.signal });
    return button;
  });
  parts.lanes.replaceChildren(...lanes);
  setHidden(buttons.tour, !model.tour.length);
  if (model.trains) {
    const named = [["token-back", "◂ pass", "One pass back (Shift+Left)"],
      ["token-next", "pass ▸", "One pass on (Shift+Right)"]];
    for (const [name, text, title] of named) {
      setText(buttons[name], text);
      buttons[name].title = title;
    }
    setAttribute(parts.tokens, "aria-label", "Passes, by step");
    setAttribute(root, "aria-label", "Watch a training step: sync point by sync point");
  }
  const hasToggle = Array.from({ length: model.n }, (_, k) => k).some(k => model.sync(k).slot("act", -1));

  const timed = model.run.world === "simulated" ? "Clock: simulated" : "Clock: measured";

  return function draw({ state, width }) {
    setHidden(parts.lanes, width >= NARROW || model.ranks === 1);
    lanes.forEach((button, rank) => setAttribute(button, "aria-pressed", rank === state.lane));
    setText(buttons.play, state.playing ? "❚❚ Pause" : "▶ Play");
    setText(buttons.clock, state.clock === "steps" ? "Clock: equal steps" : timed);
    setText(buttons.toggle, state.toggle === "after" ? "Add, then activate" : "Activate, then add");
    setText(parts.phase, `${state.phase + 1} of 4: ${PHASES[state.phase]}`);
    for (const speed of [1, 2, 4]) setAttribute(buttons[`speed-${speed}`], "aria-pressed", state.speed === speed);
    setAttribute(buttons.cut, "aria-pressed", state.cut === 1);
    setHidden(buttons.toggle, !hasToggle);
    buttons.toggle.disabled = !model.sync(state.sync).slot("act", -1);
    for (const name of ["back", "home"]) buttons[name].disabled = state.sync === 0;
    for (const name of ["next", "end"]) buttons[name].disabled = state.sync === model.n - 1;
    if (state.card !== null) {
      buttons["card-back"].disabled = state.card === 0;
      setText(buttons["card-next"], state.card === model.tour.length - 1 ? "End of the tour" : "Next card");
    }
  };
}
