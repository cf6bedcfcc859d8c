// The bars of a track: compute in the rank's hue, waiting hatched, moving in ink; ticks where a sync ends.

function trackLayout(ranks, isOverview) {
  if (isOverview) return { row: ranks > 4 ? 3 : 5, gap: 1, top: 4, bottom: 4 };
  return { row: ranks <= 4 ? 16 : ranks <= 8 ? 12 : 5, gap: ranks <= 8 ? 4 : 1, top: 20, bottom: 40 };
}

function drawTrack(track, model, state, theme, width) {
  const { isOverview, span } = track;
  const layout = trackLayout(model.ranks, isOverview), bars = model.ranks * (layout.row + layout.gap);
  const height = layout.top + bars + layout.bottom, pen = blankPage(track, width, height, theme);
  const page = { pen, model, span, layout, theme, bars, state, hatch: track.hatch };
  for (let rank = 0; rank < model.ranks; rank++) drawRow(page, rank, isOverview, width);
  if (isOverview) return;
  drawTicks(page, height);
  drawTimes(page, height);
}

// A clean canvas of this size. A new one costs as much as all the bars, so the old one stays while it fits.
function blankPage(track, width, height, theme) {
  const { node, canvas } = track, scale = window.devicePixelRatio || 1, pen = canvas.getContext("2d");
  const made = `${width} ${height} ${scale} ${theme.text} ${theme.font}`;
  if (track.made === made) {
    pen.clearRect(0, 0, width, height);
    return pen;
  }
  track.made = made;
  [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
  for (const { style } of [canvas, node]) style.height = `${height}px`;
  canvas.style.width = `${width}px`;
  pen.scale(scale, scale);
  pen.font = `12px ${theme.font}`;
  pen.textBaseline = "middle";
  track.hatch = hatching(pen, theme.text, scale);
  return pen;
}

function drawRow({ pen, model, span, layout, theme, state, hatch }, rank, isOverview, width) {
  const y = layout.top + rank * (layout.row + layout.gap), middle = y + layout.row / 2 + 0.5;
  if (!isOverview && (model.ranks <= 8 || rank % 8 === 0)) {
    pen.fillStyle = theme.text;
    pen.fillText(model.lanes[rank] ?? (width < 600 ? `r${rank}` : `rank ${rank}`), 8, middle);
    pen.fillStyle = rankHue(rank);
    pen.fillRect(0, y, 3, layout.row);
  }
  for (let k = span.from; k <= span.to; k++) {
    const time = model.sync(k).times[rank];
    if (!time.present) continue;
    const hue = rankHue(rank), bars = [
      [time.begin, time.enter, hue, "compute", textOn(hue)], [time.enter, time.ready, hatch, "wait", theme.text],
      [time.ready, time.leave, theme.text, "move", theme.background],
    ];
    for (const [from, to, fill, name, ink] of bars) {
      const left = Math.max(xOf(span, from), span.left), right = Math.min(xOf(span, to), span.right);
      if (right - left < 0.2) continue;
      pen.fillStyle = fill;
      pen.fillRect(left, y, right - left, layout.row);
      const isNamed = !isOverview && layout.row >= 12;
      if (isNamed) nameBar(pen, { left, right, middle, name, ns: to - from, ink, theme, isNow: k === state.sync });
    }
  }
}

// The words of a bar, where they fit: its time as well for the sync we are at.
function nameBar(pen, { left, right, middle, name, ns, ink, theme, isNow }) {
  const room = right - left - 8, names = [isNow ? `${name} ${duration(ns)}` : name, name];
  const text = room > 16 && names.find(words => pen.measureText(words).width < room);
  if (!text) return;
  if (name === "wait") {
    pen.fillStyle = theme.background;
    pen.fillRect(left + 2, middle - 7, pen.measureText(text).width + 4, 13);
  }
  pen.fillStyle = ink;
  pen.fillText(text, left + 4, middle);
}

function drawTicks({ pen, model, span, layout, theme, bars, state }, height) {
  let free = span.left;
  for (let k = span.from; k <= span.to; k++) {
    const [begin, , , end] = moments(model, k), x = Math.round(xOf(span, end)) + 0.5, sync = model.sync(k);
    const isLast = k === span.to || model.sync(k + 1).layer !== sync.layer;
    pen.strokeStyle = theme.text;
    pen.lineWidth = k === state.sync ? 2 : 1;
    pen.beginPath();
    pen.moveTo(x, layout.top + bars - layout.gap);
    pen.lineTo(x, layout.top + bars + (isLast ? 8 : 4));
    pen.stroke();
    const text = tickName(sync), wide = pen.measureText(text).width, center = (xOf(span, begin) + x) / 2;
    const left = clamp(center - wide / 2, span.left, span.right - wide);
    if (left < free) continue;
    pen.fillStyle = theme.text;
    if (k === state.sync) pen.fillRect(left, layout.top + bars + 24, wide, 2);
    pen.fillText(text, left, layout.top + bars + 16);
    free = left + wide + 10;
  }
}

function tickName(sync) {
  const part = partName(sync.part);
  return sync.layer >= 0 ? `${part} ${sync.layer}` : part;
}

function drawTimes({ pen, span, layout, theme }) {
  pen.fillStyle = theme.text;
  const ends = [[span.begin, 0], [(span.begin + span.end) / 2, 0.5], [span.end, 1]];
  for (const [ns, share] of ends) {
    const text = duration(Math.round(ns)), wide = pen.measureText(text).width;
    pen.globalAlpha = 0.75;
    pen.fillText(text, span.left + share * (span.right - span.left - wide), layout.top - 11);
    pen.globalAlpha = 1;
  }
}

function hatching(pen, ink, scale) {
  const tile = document.createElement("canvas"), side = Math.round(6 * scale);
  tile.width = tile.height = side;
  const line = tile.getContext("2d");
  line.strokeStyle = ink;
  line.globalAlpha = 0.55;
  line.lineWidth = scale;
  line.beginPath();
  for (const shift of [-side, 0, side]) {
    line.moveTo(shift, side);
    line.lineTo(shift + side, 0);
  }
  line.stroke();
  const pattern = pen.createPattern(tile, "repeat");
  pattern.setTransform(new DOMMatrix().scale(1 / scale));
  return pattern;
}
