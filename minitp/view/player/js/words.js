// Numbers and names in words, as minitp.trace.wording puts them, so that a page and its text table agree.

const OPS = {
  all_reduce: ["all-reduce", "sum"], reduce: ["reduce", "sum"], reduce_scatter: ["reduce-scatter", "sum and cut"],
  all_gather: ["all-gather", "concat"], gather: ["gather", "concat"], scatter: ["scatter", "cut"],
  broadcast: ["broadcast", "copy"], all_to_all: ["all-to-all", "exchange"], barrier: ["barrier", "wait"],
  send: ["send", "copy"], receive: ["receive", "copy"],
};
const PARTS = {
  load: "loading", embedding: "embedding", attention: "attention", mlp: "MLP", block: "attention and MLP", head: "head",
  sample: "sample", control: "control",
};

function opName(op) {
  return OPS[op] ? OPS[op][0] : op;
}

function opKind(op) {
  return OPS[op] ? OPS[op][1] : "message";
}

function partName(part) {
  return PARTS[part] || part;
}

// Three significant digits without trailing zeros; an exact half goes to the even digit, as in Python.
function three(number) {
  if (!number) return "0";
  const [digits, exponent] = Math.abs(number).toExponential(60).split("e");
  const isHalf = /^50*$/.test(digits.slice(4)) && "02468".includes(digits[3]);
  const rounded = isHalf ? Number(`${digits.slice(0, 4)}e${exponent}`) * Math.sign(number) : Number(number.toPrecision(3));
  return grouped(rounded);
}

function grouped(number) {
  return number.toLocaleString("en-US", { maximumFractionDigits: 20 });
}

function duration(ns) {
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

function dimensions(shape) {
  return shape.join("×") || "–";
}

function counted(number, noun) {
  return `${grouped(number)} ${noun}${number === 1 ? "" : /s$/.test(noun) ? "es" : "s"}`;
}

const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;

// A token as it can be seen: a line end and a tab as signs, what can't be shown (or would turn the line round) as �.
function visible(text) {
  return text.replace(/\n/g, "⏎").replace(/\t/g, "⇥").replace(UNSEEN, "�");
}

function shortened(text, longest) {
  const characters = Array.from(text);
  return characters.length <= longest ? text : `${characters.slice(0, longest - 1).join("")}…`;
}
