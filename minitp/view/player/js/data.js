// From the play (JSON columns of a file that anybody may have written) to a model that answers by sync and rank.
// What is missing or out of range is left out; text stays text.

const MAX_RANKS = 64;
const TRAINING = new Set(["forward", "backward", "optimizer"]);   // the phases of a step

function decodePlay(play) {
  const run = play.run || {}, columns = play.syncs || {};
  const string = number => String((play.strings || [])[number] ?? "");
  const n = (columns.pass || []).length;
  const ranks = clamp(Math.trunc(run.ranks) || 1, 1, MAX_RANKS);
  const model = { run, n, ranks, string, pieces: play.pieces || {}, tour: play.tour || [], prompt: play.prompt || [] };
  model.lanes = Array.isArray(run.lanes) ? run.lanes.map(String) : [];
  const arrays = syncArrays(play, columns, n);
  const times = int32s(play.times);
  const kept = new Array(n);
  model.passes = readPasses(play.passes || {}, string, n);
  model.trains = model.passes.some(pass => TRAINING.has(pass.phase));
  const never = typeof play.never === "object" && play.never || {};
  const tick = k => finite(((play.passes || {}).tick || [])[columns.pass[k]], 1);
  model.sync = k => kept[k] ??= readSync(play, columns, string, k, readTimes(times, ranks, k, tick(k)), arrays(k),
    readFailed(never[k], ranks));
  model.weight = weightArrays(play);
  return model;
}

// Of a run that failed: who never came to a sync, whether anybody got past it, and both in words.
function readFailed(told, ranks) {
  const missing = Array.isArray(told?.missing) ? told.missing.filter(rank => rank >= 0 && rank < ranks) : [];
  return { missing, never: told?.never === true, failed: String(told?.words ?? "") };
}

function readSync(play, columns, string, k, times, slots, failed) {
  const number = (name, missing = 0) => finite((columns[name] || [])[k], missing);
  const word = name => string((columns[name] || [])[k]);
  return {
    index: k, pass: number("pass"), op: word("op"), site: word("site"), layer: number("layer", -1), part: word("part"),
    reason: word("reason"), before: word("before"), after: word("after"), dtype: word("dtype"), plane: word("plane"),
    shape: (play.shapes || [])[number("shape", -1)] || [], payload: number("payload"), root: number("root", -1),
    broken: number("broken") > 0, caller: word("caller"), code: word("code"), last: number("last", -1), times,
    among: number("among"), group: word("group"), ...failed,
    slot: (name, rank) => slots.get(`${name}/${rank}`) || null,
  };
}

// Times in ns since the pass began; a long pass counts them in ticks of several ns.
function readTimes(times, ranks, k, tick) {
  const rows = [];
  for (let rank = 0; rank < ranks; rank++) {
    const at = (k * ranks + rank) * 5;
    const [begin, enter, ready, leave, present] = times.length >= at + 5 ? times.subarray(at, at + 5) : [0, 0, 0, 0, 0];
    rows.push({
      begin: begin * tick, enter: enter * tick, ready: ready * tick, leave: leave * tick, present: present > 0,
    });
  }
  return rows;
}

function readPasses(columns, string, n) {
  return (columns.first || []).map((first, index) => {
    const text = name => string((columns[name] || [])[index]);
    const number = name => finite((columns[name] || [])[index], 0);
    return {
      index, phase: text("phase"), step: number("step"), micro: finite((columns.micro || [])[index], -1),
      text: text("text"), input: text("input"), learns: text("learns"),
      loss: finite((columns.loss || [])[index], null),
      first: clamp(finite(first, 0), 0, n), count: clamp(number("count"), 0, n),
      begin: number("begin"), end: number("end"),
    };
  });
}

// k => Map of "slot/rank" => array, for the arrays that were kept of sync k. They are decoded when first asked for.
function syncArrays(play, columns, n) {
  const blob = bytes(play.blob), layouts = play.layouts || [], of = columns.layout || [];
  const begins = new Float64Array(n + 1), none = new Map();
  for (let k = 0; k < n; k++) {
    begins[k + 1] = begins[k] + (layouts[of[k]] ? layouts[of[k]].slots.reduce((sum, slot) => sum + coded(slot), 0) : 0);
  }
  return k => {
    if (!layouts[of[k]]) return none;
    let at = begins[k];
    return new Map(layouts[of[k]].slots.map(slot => {
      const entry = [`${slot.slot}/${slot.rank}`, array(slot, blob, at)];
      at += coded(slot);
      return entry;
    }));
  };
}

// (name, rank) => the slice of the weight with this physical name that the rank stores: {rows, cols, shape, cut, parts},
// with kind, max and at(i, j) where numbers were kept. All layers are cut alike: parts stand once, under layers.*.
function weightArrays(play) {
  const blob = bytes(play.weight_blob), numbers = new Map(), cuts = new Map(), kept = new Map();
  let at = 0;
  for (const weight of play.weights || []) {
    const key = `${weight.name}/${weight.rank}`, found = array(weight, blob, at);
    if (found) numbers.set(key, found);
    if (Array.isArray(weight.parts)) cuts.set(key, weight);
    at += coded(weight);
  }
  const read = (name, rank) => {
    const cut = cuts.get(`${name}/${rank}`) || cuts.get(`${name.replace(/^layers\.\d+\./, "layers.*.")}/${rank}`);
    if (!cut) return null;
    const layer = (name.match(/^layers\.\d+\./) || [""])[0];
    const parts = cut.parts.map(part => ({ ...part, name: String(part.name).replace(/^layers\.\*\./, layer) }));
    const { rows, cols, shape } = cut;
    return { rows, cols, shape: shape || [rows, cols], ...numbers.get(`${name}/${rank}`), cut: cut.cut, parts };
  };
  return (name, rank) => {
    const key = `${name}/${rank}`;
    if (!kept.has(key)) kept.set(key, read(name, rank));
    return kept.get(key);
  };
}

// Bytes that an array takes in a blob: float32, or one float32 scale and a byte per number, padded to whole words;
// of one that was not kept, none.
function coded({ kind, rows, cols }) {
  if (kind === "none") return 0;
  return kind === "f32" ? 4 * rows * cols : 4 + 4 * Math.ceil(rows * cols / 4);
}

function array({ kind, rows, cols, shape, axis }, blob, at) {
  if (kind === "none" || at + coded({ kind, rows, cols }) > blob.length) return null;
  const base = { rows, cols, kind, shape: shape || [rows, cols], axis: axis || "" };
  if (kind === "f32") {
    const numbers = new Float32Array(blob.buffer, at, rows * cols);
    const max = numbers.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    return { ...base, max, at: (i, j) => numbers[i * cols + j] };
  }
  const scale = new Float32Array(blob.buffer, at, 1)[0];
  return { ...base, max: scale, at: (i, j) => blob[at + 4 + i * cols + j] / 255 * scale };
}

function bytes(text) {
  const characters = atob(text || ""), made = new Uint8Array(characters.length);
  for (let i = 0; i < made.length; i++) made[i] = characters.charCodeAt(i);
  return made;
}

function int32s(text) {
  const raw = bytes(text);
  return new Int32Array(raw.buffer, 0, raw.length >> 2);
}

function finite(number, missing) {
  return Number.isFinite(number) ? number : missing;
}

function clamp(number, low, high) {
  return Math.min(Math.max(number, low), high);
}
