// The measured timeline of the pass, which is the scrubber. Long passes have two tracks: all of it, and the syncs around.

const AROUND = 6;                                      // syncs on a page of the detail track; one more on either side

function createScrubber(parts, model, act, host) {
  const tracks = [
    { node: parts.overview, isOverview: true }, { node: parts.detail, isOverview: false },
  ].map(track => ({ ...track, canvas: track.node.querySelector("canvas"), now: track.node.querySelector(".now"), span: null }));
  const windowMark = parts.overview.querySelector(".window");
  let key = "", held = null, dark = null;

  for (const track of tracks) {
    const move = event => scrubTo(model, act, track, event.clientX - track.node.getBoundingClientRect().left, held.pass);
    track.node.addEventListener("pointerdown", event => {
      if (event.button || !track.span) return;
      held = { pass: track.span.pass, at: event.clientX };
      track.node.setPointerCapture(event.pointerId);
      move(event);
    }, { signal: act.signal });
    track.node.addEventListener("pointermove", event => held && move(event), { signal: act.signal });
    for (const end of ["pointerup", "pointercancel"]) {
      track.node.addEventListener(end, event => {
        if (!held) return;
        const isClick = Math.abs(event.clientX - held.at) < 4, tick = isClick && end === "pointerup" && nearTick(model, track, event);
        held = null;
        act.draw();
        if (typeof tick === "number") act.open(tick);
      }, { signal: act.signal });
    }
  }

  return function draw({ state, shown, width }) {
    const sync = model.sync(state.sync), pass = model.passes[sync.pass];
    const [from, to] = held ? [tracks[1].span.from, tracks[1].span.to] : spanAround(pass, state.sync);
    const isLong = to - from + 1 < pass.count;
    setHidden(parts.overview, !isLong);
    const wanted = `${pass.index} ${from} ${to} ${state.sync} ${width} ${state.pinned ? state.pinned.rank : ""}`;
    if (wanted !== key || dark !== host.theme) {
      [key, dark] = [wanted, host.theme];
      tracks[0].span = timeSpan(model, pass, pass.first, pass.first + pass.count - 1, width);
      tracks[1].span = timeSpan(model, pass, from, to, width);
      for (const track of isLong ? tracks : [tracks[1]]) drawTrack(track, model, state, host.theme, width);
      setText(parts.axis, axisTitle(model, pass, isLong, from, to));
      placeWindow(windowMark, tracks[0].span, tracks[1].span);
    }
    const ns = timeOf(model, shown);
    for (const { span, now } of tracks) {
      const x = xOf(span, ns);
      setHidden(now, model.sync(shown.sync).pass !== span.pass || ns < span.begin || ns > span.end);
      now.style.transform = `translateX(${x.toFixed(1)}px)`;
    }
    sayWhere(parts.detail, model, pass, state);
  };
}

// The syncs on the page of the detail track that holds sync k, with a neighbor on either side.
function spanAround(pass, k) {
  const last = pass.first + pass.count - 1;
  if (pass.count <= 2 * AROUND) return [pass.first, last];
  const page = pass.first + AROUND * Math.floor((k - pass.first) / AROUND);
  return [Math.max(page - 1, pass.first), Math.min(page + AROUND, last)];
}

function timeSpan(model, pass, from, to, width) {
  const left = gutter(width);
  return { pass: pass.index, from, to, begin: moments(model, from)[0], end: Math.max(moments(model, to)[3], moments(model, from)[0] + 1),
    left, right: width - 8 };
}

function gutter(width) {
  return width < 600 ? 32 : 64;
}

function xOf(span, ns) {
  return span.left + (ns - span.begin) / (span.end - span.begin) * (span.right - span.left);
}

// Within 5 px of a tick it is that sync's rest, else the moment itself: scrubbing to a tick equals stepping there.
function scrubTo(model, act, { span }, x, pass) {
  const share = clamp((x - span.left) / (span.right - span.left), 0, 1);
  const ns = span.begin + share * (span.end - span.begin);
  const place = placeAt(model, pass, ns);
  const tick = [place.sync - 1, place.sync].filter(k => k >= span.from && k <= span.to)
    .find(k => Math.abs(xOf(span, moments(model, k)[3]) - span.left - share * (span.right - span.left)) <= 5);
  act(tick === undefined ? { type: "time", pass, ns, jump: true } : { type: "seek", sync: tick, ...REST, jump: true });
}

function nearTick(model, { span, node }, event) {
  const x = event.clientX - node.getBoundingClientRect().left;
  for (let k = span.from; k <= span.to; k++) if (Math.abs(xOf(span, moments(model, k)[3]) - x) <= 5) return k;
  return null;
}

function placeWindow(mark, whole, part) {
  const from = xOf(whole, part.begin), to = xOf(whole, part.end);
  mark.style.transform = `translateX(${(from - 2).toFixed(1)}px)`;
  mark.style.width = `${Math.max(to - from + 4, 4).toFixed(1)}px`;
}

function axisTitle(model, pass, isLong, from, to) {
  const part = isLong ? ` · above: the whole pass, below: sync points ${from - pass.first + 1}–${to - pass.first + 1}` : "";
  return `Measured time of this pass, ${duration(passNs(model, pass.index))} in all${part}. Drag to scrub.`;
}

function sayWhere(slider, model, pass, state) {
  const ns = Math.round(timeOf(model, state)), all = passNs(model, pass.index);
  const values = { "aria-valuemin": 0, "aria-valuemax": all, "aria-valuenow": clamp(ns, 0, all),
    "aria-valuetext": `${duration(ns)}, sync point ${state.sync - pass.first + 1} of ${pass.count}, ${PHASES[state.phase]}` };
  for (const [name, value] of Object.entries(values)) setAttribute(slider, name, value);
}
