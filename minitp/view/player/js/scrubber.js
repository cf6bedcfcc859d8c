// The measured timeline of the pass, which is the scrubber. Long passes have two tracks: all of it, and the syncs
// around the current one.

const AROUND = 6;                                      // syncs on a page of the detail track; one more on either side
const NEAR = 5;                                        // px: so close to a tick means the tick

function createScrubber(parts, model, act, host) {
  const [overview, detail] = [parts.overview, parts.detail].map((node, index) => ({
    node, isOverview: index === 0, canvas: node.querySelector("canvas"), now: node.querySelector(".now"), span: null,
  }));
  const windowMark = parts.overview.querySelector(".window");
  let held = null, said = null;

  const release = (track, event, isDone) => {
    const isClick = held && isDone && Math.abs(event.clientX - held.at) < 4;
    held = null;
    act.draw();
    const tick = isClick ? tickAt(model, track, placeInTrack(track, event)) : undefined;
    if (tick !== undefined) act.open(tick);
  };
  for (const track of [overview, detail]) {
    const listenTo = (name, heard) => track.node.addEventListener(name, heard, { signal: act.signal });
    listenTo("pointerdown", event => {
      if (event.button || !track.span) return;
      held = { at: event.clientX };
      track.node.setPointerCapture(event.pointerId);
      scrubTo(model, act, track, placeInTrack(track, event));
    });
    listenTo("pointermove", event => held && scrubTo(model, act, track, placeInTrack(track, event)));
    listenTo("pointerup", event => held && release(track, event, true));
    listenTo("pointercancel", event => held && release(track, event, false));
  }

  return function draw({ state, shown, width }) {
    const pass = model.passes[model.sync(state.sync).pass], last = pass.first + pass.count - 1;
    const [from, to] = held ? [detail.span.from, detail.span.to] : spanAround(pass, state.sync);
    const isLong = to - from + 1 < pass.count, common = `${pass.index} ${width}`;
    setHidden(parts.overview, !isLong);
    const isNew = [
      redraw(overview, common, model, state, host.theme, width, pass.first, last),
      redraw(detail, `${common} ${from} ${to} ${state.sync}`, model, state, host.theme, width, from, to),
    ].some(Boolean);
    if (isNew) {
      setText(parts.axis, axisTitle(model, pass, isLong, from, to));
      placeWindow(windowMark, overview.span, detail.span);
    }
    const ns = timeOf(model, shown), isHere = model.sync(shown.sync).pass === pass.index;
    for (const { span, now } of [overview, detail]) {
      setHidden(now, !isHere || ns < span.begin || ns > span.end);
      now.style.transform = `translateX(${xOf(span, ns).toFixed(1)}px)`;
    }
    if (isNew || state !== said) sayWhere(parts.detail, model, pass, said = state);
  };
}

// Draws a track where what it shows has changed; says whether it did.
function redraw(track, key, model, state, theme, width, from, to) {
  if (track.key === key && track.theme === theme) return false;
  Object.assign(track, { key, theme, span: timeSpan(model, from, to, width) });
  drawTrack(track, model, state, theme, width);
  return true;
}

// The syncs on the page of the detail track that holds sync k, with a neighbor on either side.
function spanAround(pass, k) {
  const last = pass.first + pass.count - 1;
  if (pass.count <= 2 * AROUND) return [pass.first, last];
  const page = pass.first + AROUND * Math.floor((k - pass.first) / AROUND);
  return [Math.max(page - 1, pass.first), Math.min(page + AROUND, last)];
}

function timeSpan(model, from, to, width) {
  const begin = moments(model, from)[0], end = Math.max(moments(model, to)[3], begin + 1);
  return { pass: model.sync(from).pass, from, to, begin, end, left: gutter(width), right: width - 8 };
}

function gutter(width) {
  return width < 600 ? 32 : 64;
}

function xOf(span, ns) {
  return span.left + (ns - span.begin) / (span.end - span.begin) * (span.right - span.left);
}

function placeInTrack({ span, node }, event) {
  return clamp(event.clientX - node.getBoundingClientRect().left, span.left, span.right);
}

// At a tick it is that sync's rest, else the moment itself: scrubbing to a tick equals stepping there.
function scrubTo(model, act, track, x) {
  const { span } = track, tick = tickAt(model, track, x);
  const ns = span.begin + (x - span.left) / (span.right - span.left) * (span.end - span.begin);
  const moment = { type: "time", pass: span.pass, ns, jump: true };
  act(tick === undefined ? moment : { type: "seek", sync: tick, ...REST, jump: true });
}

// The sync whose tick is nearest, where one is near: in a track where ticks stand close together, at most half way.
function tickAt(model, { span }, x) {
  const ns = span.begin + (x - span.left) / (span.right - span.left) * (span.end - span.begin);
  const after = placeAt(model, span.pass, ns).sync, far = k => Math.abs(xOf(span, moments(model, k)[3]) - x);
  const [best] = [after - 1, after].filter(k => k >= span.from && k <= span.to).sort((a, b) => far(a) - far(b));
  return best !== undefined && far(best) <= NEAR ? best : undefined;
}

function placeWindow(mark, whole, part) {
  const from = xOf(whole, part.begin), to = xOf(whole, part.end);
  mark.style.transform = `translateX(${(from - 2).toFixed(1)}px)`;
  mark.style.width = `${Math.max(to - from + 4, 4).toFixed(1)}px`;
}

function axisTitle(model, pass, isLong, from, to) {
  const numbers = `${from - pass.first + 1}–${to - pass.first + 1}`;
  const part = isLong ? ` · above: the whole pass, below: sync points ${numbers}` : "";
  const clock = model.run.world === "simulated" ? "Simulated time (a model, not measured)" : "Measured time";
  const never = model.sync(pass.first + pass.count - 1).never ? ", its last wait without an end" : "";
  return `${clock} of this pass, ${duration(passNs(model, pass.index))} in all${never}${part}. Drag to scrub.`;
}

function sayWhere(slider, model, pass, state) {
  const ns = Math.round(timeOf(model, state)), all = passNs(model, pass.index), number = state.sync - pass.first + 1;
  const values = {
    "aria-valuemin": 0, "aria-valuemax": all, "aria-valuenow": clamp(ns, 0, all),
    "aria-valuetext": `${duration(ns)}, sync point ${number} of ${pass.count}, ${PHASES[state.phase]}`,
  };
  for (const [name, value] of Object.entries(values)) setAttribute(slider, name, value);
}
