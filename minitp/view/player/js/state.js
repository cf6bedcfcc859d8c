// The state of the view and its pure reducer. The picture is a function of (play, state) alone, so stepping back,
// scrubbing and links need nothing of their own.

const REST = { phase: 3, t: 1 };

function initialState(model) {
  const pass = model.passes.find(pass => pass.phase !== "load" && pass.count) || { first: 0 };
  return {
    sync: clamp(pass.first, 0, model.n - 1), ...REST, clock: "steps", speed: 1, playing: false, cut: 1,
    toggle: "after", pinned: null, lane: 0, card: null,
  };
}

// reduce(model, state, action) -> state; the same object where nothing changes. Unknown actions change nothing.
function reduce(model, state, action) {
  const change = ACTIONS[action.type];
  const changed = change ? change(model, state, action) : {};
  const differs = Object.keys(changed).some(key => changed[key] !== state[key]);
  return differs ? { ...state, ...changed } : state;
}

const ACTIONS = {
  sync: (model, state, { by }) => goTo(model, state.sync + by),
  phase: (model, state, { by }) => phaseBy(model, state, by),
  token: (model, state, { by }) => tokenBy(model, state, by),
  layer: (model, state, { by }) => layerBy(model, state, by),
  home: model => goTo(model, 0),
  end: model => goTo(model, model.n - 1),
  seek: (model, state, action) => ({ ...seek(model, state, action), playing: false }),
  time: (model, state, { pass, ns }) => timeIn(model, clamp(pass, 0, model.passes.length - 1), ns),
  play: (model, state) => playOrPause(model, state),
  pause: () => ({ playing: false }),
  tick: (model, state, { ms }) => tick(model, state, ms),
  speed: (model, state, { value }) => ({ speed: clamp(finite(value, 1), 1, 4) }),
  clock: (model, state) => ({ clock: state.clock === "steps" ? "measured" : "steps" }),
  cut: (model, state, { value }) => ({ cut: value ?? (state.cut ? 0 : 1) }),
  toggle: (model, state) => ({ toggle: state.toggle === "after" ? "before" : "after" }),
  pin: (model, state, { what }) => ({ pinned: samePin(state.pinned, what) ? null : what }),
  unpin: () => ({ pinned: null }),
  lane: (model, state, { rank }) => ({ lane: clamp(rank, 0, model.ranks - 1) }),
  card: (model, state, { index }) => openCard(model, state, index),
};

function goTo(model, sync) {
  return { sync: clamp(sync, 0, model.n - 1), playing: false };
}

function timeIn(model, pass, ns) {
  return model.passes[pass].count ? { ...placeAt(model, pass, ns), playing: false } : {};
}

// Play at the end starts over.
function playOrPause(model, state) {
  const start = { sync: initialState(model).sync, phase: 0, t: 0 };
  return { playing: !state.playing, ...(!state.playing && atEnd(model, state) ? start : {}) };
}

function atEnd(model, state) {
  return state.sync === model.n - 1 && state.phase === 3 && state.t === 1;
}

function phaseBy(model, state, by) {
  const number = 4 * state.sync + state.phase + by;
  if (number < 0 || number > 4 * model.n - 1) return { playing: false };
  return { sync: number >> 2, phase: number & 3, playing: false };
}

// The same place within another pass, or its last where that pass is shorter.
function tokenBy(model, state, by) {
  const from = model.passes[model.sync(state.sync).pass];
  const to = model.passes[clamp(from.index + by, 0, model.passes.length - 1)];
  if (!to.count || to === from) return { playing: false };
  return goTo(model, to.first + Math.min(state.sync - from.first, to.count - 1));
}

// The same part of the next layer up or down. What has no layer lies below the first (embedding) or above the last
// (head).
function layerBy(model, state, by) {
  const here = model.sync(state.sync), pass = model.passes[here.pass];
  const step = pass.phase === "backward" ? -by : by;   // which comes to the upper layers first
  for (let k = state.sync + step; k >= pass.first && k < pass.first + pass.count; k += step) {
    const there = model.sync(k);
    const same = there.part === here.part || there.layer < 0 || here.layer < 0;
    if (there.layer !== here.layer && same) return goTo(model, k);
  }
  return { playing: false };
}

function seek(model, state, { sync, phase, t, clock, cut, toggle }) {
  const to = { sync: clamp(Math.trunc(finite(sync, state.sync)), 0, model.n - 1) };
  if (Number.isFinite(phase)) {
    Object.assign(to, { phase: clamp(Math.trunc(phase), 0, 3), t: clamp(finite(t, 1), 0, 1) });
  }
  if (clock) to.clock = clock === "measured" ? "measured" : "steps";
  if (cut === 0 || cut === 1) to.cut = cut;
  if (toggle) to.toggle = toggle === "before" ? "before" : "after";
  return to;
}

function tick(model, state, ms) {
  if (!state.playing) return {};
  const place = advance(model, state, state.clock, ms * state.speed);
  return { ...place, playing: !atEnd(model, place) };
}

// A tour card is a state: it sets what it names and leaves the rest as it is.
function openCard(model, state, index) {
  if (index === null) return { card: null };
  const number = clamp(index, 0, model.tour.length - 1), card = model.tour[number];
  if (!card) return {};
  return { ...seek(model, state, { t: 1, ...card }), card: number, playing: false, pinned: null };
}

function samePin(one, other) {
  return Boolean(one && other) && JSON.stringify(one) === JSON.stringify(other);
}
