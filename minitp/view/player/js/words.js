// Numbers and names in words, as minitp.trace.wording puts them: a picture and its text table agree.

const OPS = {
  all_reduce: ["all-reduce", "sum"], all_reduce_max: ["all-reduce of maxima", "max"], reduce: ["reduce", "sum"],
  reduce_scatter: ["reduce-scatter", "sum and cut"],
  all_gather: ["all-gather", "concat"], gather: ["gather", "concat"], scatter: ["scatter", "cut"],
  broadcast: ["broadcast", "copy"], all_to_all: ["all-to-all", "exchange"], barrier: ["barrier", "wait"],
  send: ["message", "copy"], receive: ["message", "copy"],
};
const PARTS = {
  load: "loading", embedding: "embedding", attention: "attention", mlp: "MLP", block: "attention and MLP", head: "head",
  sample: "sample", control: "control", loss: "loss", d_attention: "attention", d_mlp: "MLP",
  d_block: "attention and MLP", d_head: "head", copies: "copied heads", norm: "gradient norm",
};

const NUMBERS = new Intl.NumberFormat("en-US", { maximumFractionDigits: 20 });

function opName(op) {
  return OPS[op] ? OPS[op][0] : op;
}

function opKind(op) {
  return OPS[op] ? OPS[op][1] : "message";
}

function partName(part) {
  return PARTS[part] || part;
}

// Three significant digits as Python's .3g: no trailing zeros, an exact half goes to the even digit.
function three(number) {
  if (!number) return "0";
  const [digits, exponent] = Math.abs(number).toExponential(60).split("e");
  const isHalf = /^50*$/.test(digits.slice(4)) && "02468".includes(digits[3]);
  const short = isHalf ? `${digits.slice(0, 4)}e${exponent}` : Math.abs(number).toExponential(2);
  const [mantissa, power] = [Number(short.split("e")[0]), Number(short.split("e")[1])];
  const sign = number < 0 ? "-" : "";
  if (power >= -4 && power < 3) return sign + grouped(Number(short));
  return `${sign}${mantissa}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

function grouped(number) {
  return NUMBERS.format(number);
}

function duration(ns) {
  if (ns < 1) return "0 ns";
  for (const [factor, unit] of [[1, "ns"], [1e3, "µs"], [1e6, "ms"]]) {
    if (ns < 999.5 * factor) return `${three(ns / factor)} ${unit}`;
  }
  return ns < 999.5e9 ? `${three(ns / 1e9)} s` : `${grouped(Math.round(ns / 1e9))} s`;
}

function size(count) {
  if (count < 10000) return `${grouped(count)} B`;
  for (const [factor, unit] of [[1e3, "kB"], [1e6, "MB"], [1e9, "GB"]]) {
    if (count < 999.5 * factor) return `${three(count / factor)} ${unit}`;
  }
  return count < 999.5e12 ? `${three(count / 1e12)} TB` : `${grouped(Math.round(count / 1e12))} TB`;
}

function counted(number, noun) {
  return `${grouped(number)} ${noun}${number === 1 ? "" : /s$/.test(noun) ? "es" : "s"}`;
}

function dimensions(shape) {
  return shape.join("×") || "–";
}

const GAPS = /[\s\u001c-\u001f\u0085]+/, UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;
const UNSEEN = /[\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;

// A token as it can be seen: spaces alone, a line end and a tab as signs; what can't be shown, or would turn the line
// round, as �.
function visible(text) {
  const seen = text.replace(/^ +$/, spaces => "␣".repeat(spaces.length));
  return seen.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(UNSEEN, "�");
}

// Text from a file as one line, as minitp.trace.wording.plain: what can't be printed becomes �.
function plain(text, longest) {
  return shortened(text.split(GAPS).filter(Boolean).join(" ").replace(UNPRINTABLE, "�"), longest);
}

function shortened(text, longest) {
  const characters = Array.from(text);
  return characters.length <= longest ? text : `${characters.slice(0, longest - 1).join("")}…`;
}
