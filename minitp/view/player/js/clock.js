// Two clocks over the same places. A place is (sync, phase, t): where the run stands, t in 0..1 within the phase.
// Steps: every phase takes its fixed time. Measured: a sync's moments on the run's own clock, in ns since its pass
// began.

const PHASES = ["compute", "arriving", "combine", "after"];
const PHASE_MS = [700, 600, 600, 500];
const SYNC_MS = PHASE_MS.reduce((sum, ms) => sum + ms, 0);

// [work begins, first rank arrives, last rank arrives, last rank leaves]; never runs backwards, whatever the times say.
// A wait that never ended may have lasted minutes, beside which nothing else could be seen: of it as much is shown as
// the pass had taken until then.
function moments(model, k) {
  const kept = model.moments || (model.moments = new Array(model.n));
  for (let i = kept[k] ? k : firstUnknown(model, k); i <= k; i++) {
    const sync = model.sync(i), begin = i === model.passes[sync.pass].first ? 0 : kept[i - 1][3];
    const here = sync.times.filter(row => row.present);
    const first = Math.max(begin, here.length ? Math.min(...here.map(row => row.enter)) : begin);
    const last = Math.max(first, ...here.map(row => row.enter));
    const end = Math.max(last, ...here.map(row => row.leave));
    kept[i] = [begin, first, last, sync.never ? Math.min(end, last + Math.max(last, 1)) : end];
  }
  return kept[k];
}

function firstUnknown(model, k) {
  let i = k;
  while (i > model.passes[model.sync(k).pass].first && !model.moments[i - 1]) i--;
  return i;
}

// ns since the pass began. What comes after a sync takes no time of its own: the next sync's work has begun.
function timeOf(model, { sync, phase, t }) {
  const at = moments(model, sync);
  return phase === 3 ? at[3] : at[phase] + t * (at[phase + 1] - at[phase]);
}

// The place at `ns` of a pass, the inverse of timeOf; a moment at which a sync ends is that sync's rest.
function placeAt(model, pass, ns) {
  const { first, count } = model.passes[pass];
  let low = first, high = first + count - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (moments(model, middle)[3] < ns) low = middle + 1; else high = middle;
  }
  const at = moments(model, low);
  if (ns >= at[3]) return { sync: low, phase: 3, t: 1 };
  const phase = ns < at[1] ? 0 : ns < at[2] ? 1 : 2;
  return { sync: low, phase, t: clamp((ns - at[phase]) / (at[phase + 1] - at[phase] || 1), 0, 1) };
}

function passNs(model, pass) {
  const { first, count } = model.passes[pass];
  return count ? moments(model, first + count - 1)[3] : 0;
}

// One number for a place, for motion between two: whole numbers are the borders between phases.
function numberOf({ sync, phase, t }) {
  return 4 * sync + phase + t;
}

function placeOf(number, n) {
  const at = clamp(number, 0, 4 * n);
  const whole = Math.min(Math.floor(at), 4 * n - 1);
  return { sync: whole >> 2, phase: whole & 3, t: at - whole };
}

// Where playing stands `ms` later. At the measured clock a pass takes as long as at equal steps, slowed down evenly.
function advance(model, place, clock, ms) {
  return clock === "measured" ? advanceMeasured(model, place, ms) : advanceSteps(model, place, ms);
}

function advanceSteps(model, place, ms) {
  let at = numberOf(place);
  while (ms > 0 && at < 4 * model.n) {
    const phase = Math.floor(at) & 3, left = (1 - at % 1) * PHASE_MS[phase];
    at = left <= ms ? Math.floor(at) + 1 : at + ms / PHASE_MS[phase];
    ms -= left;
  }
  return at >= 4 * model.n ? { sync: model.n - 1, phase: 3, t: 1 } : placeOf(at, model.n);
}

function advanceMeasured(model, place, ms) {
  let pass = model.sync(place.sync).pass, at = timeOf(model, place);
  for (; pass < model.passes.length; pass++, at = 0) {
    const all = passNs(model, pass), then = at + ms * nsPerMs(model, pass);
    if (then < all) return placeAt(model, pass, then);
    if (model.passes[pass].count) ms -= (all - at) / nsPerMs(model, pass);
  }
  return { sync: model.n - 1, phase: 3, t: 1 };
}

function nsPerMs(model, pass) {
  const count = model.passes[pass].count;
  return count ? Math.max(passNs(model, pass), 1) / (count * SYNC_MS) : 1;
}
