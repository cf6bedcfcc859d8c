// The caption of a sync point in a phase, word for word that of minitp.view.text: a test compares the two.

const WORK = {
  attention: "each rank multiplies x by its own heads' columns of Wq, Wk and Wv, lets each head attend on its own, "
    + "and multiplies the result by its rows of Wo: a partial sum of full shape. Nothing is sent.",
  mlp: "each rank multiplies x by its own columns, applies the activation to finished entries, and multiplies by "
    + "its own rows: a partial sum of full shape. Nothing is sent.",
  gated: "each rank multiplies x by its own columns of gate and up, multiplies act(gate) by up entry by entry "
    + "(both lie in its shard), and multiplies by its own rows of down: a partial sum of full shape. Nothing is sent.",
  block: "each rank runs its heads and its part of the MLP on the same x and adds the two partial sums: one sync "
    + "for both.",
  load: "the root holds the whole matrix, the others wait for their piece.",
  sample: "each rank looks for the best tokens among its own logits.",
  other: "each rank computes its own part.",
};
const LOOK_UP = {
  shard: "each rank looks up its own columns of every token's row.",
  partial: "the rank that holds the token's row looks it up, the others put in zeros.",
};
const LOGITS = {
  shard: "each rank multiplies x by its own rows of the vocabulary: its own words' logits.",
  partial: "each rank multiplies its own columns of x by its columns of the table: a partial sum of all logits.",
};
const COMBINES = {
  all_reduce: "adds the {n} partial sums of {shape} entry by entry; every rank gets the whole sum",
  all_reduce_max: "takes the largest of the {n} ranks' numbers at each of {shape} places; every rank gets them",
  all_gather: "lays the {n} shards side by side to {shape}; every rank gets the whole",
  reduce_scatter: "adds the {n} partial sums of {shape}; every rank keeps its own slice of the sum",
  all_to_all: "cuts {shape} the other way: every rank sends each other one a part",
  scatter: "cuts {shape} and sends each of {n} ranks its piece",
  broadcast: "copies {shape} to all {n} ranks",
  gather: "brings the {n} shards of {shape} to one rank",
  reduce: "adds the {n} partial sums of {shape} on one rank",
  send: "carries {shape} from one rank to another",
  receive: "carries {shape} from one rank to another",
};

function captionOf(model, sync, phase) {
  const here = sync.times.map((row, rank) => ({ ...row, rank })).filter(row => row.present);
  if (sync.never && phase) {
    return [sync.failed, neverWords(sync, here.length), "After: nothing came after. The run failed here."][phase - 1];
  }
  const said = [computing, arriving, combining, afterwards][phase](model, sync, here);
  const text = sync.failed && phase === 3 ? `${said} ${sync.failed}` : said;
  return sync.among ? inGroups(text, model.lanes) : text;
}

// Where a lane stands for the devices that meet: they are no ranks of the picture.
const IN_GROUPS = [
  ["very rank", "very device of the group"], ["ach rank", "ach device of the group"], ["no rank", "no device"],
  ["the ranks'", "the devices'"], ["on one rank only", "on one device only"],
];

function inGroups(text, lanes) {
  const said = IN_GROUPS.reduce((words, [rank, device]) => words.replaceAll(rank, device), text);
  return said.replace(/([Rr])ank (\d+)/g, (word, letter, rank) => lanes[rank] === undefined ? word
    : letter === "R" ? upper(lanes[rank]) : lanes[rank]);
}

const upper = text => text.slice(0, 1).toUpperCase() + text.slice(1);

function computing(model, sync, here) {
  const { part, before } = sync;
  const kind = before.startsWith("shard") ? "shard" : "partial";
  const forward = part === "embedding" ? LOOK_UP[kind] : part === "head" ? LOGITS[kind]
    : part === "mlp" && (model.run.model || {}).gated ? WORK.gated : WORK[part] || WORK.other;
  const work = trainingWork(sync) || againWords(model, sync) + forward;
  return `Compute: ${work}${here.length ? ` Time: ${byRank(here, row => row.enter - row.begin)}.` : ""}`;
}

function arriving(model, { op, root, last, among, group }, here) {
  if (here.length <= 1 && among > 1) {
    return op === "send" || op === "receive" ? `${upper(group)}; one end is shown.`
      : `Here meet ${group}: the lane stands for all of them, who come at the same time.`;
  }
  if (here.length <= 1) return "One rank alone: nobody to wait for.";
  const waiting = here.filter(row => row.ready > row.enter);
  const start = ["scatter", "broadcast", "send", "receive"].includes(op)
    ? `Data comes from ${root >= 0 ? `rank ${root}` : "the root"}; the others wait until it is there.`
    : ["gather", "reduce"].includes(op) ? `Only the root, rank ${root}, waits for the others; rank ${last} came last.`
      : `Rank ${last} came last; nothing starts before.`;
  return `${start} ${waiting.length ? `Waiting: ${byRank(waiting, row => row.ready - row.enter)}` : "Nobody waited"}.`;
}

function byRank(rows, ns) {
  return rows.map(row => `rank ${row.rank}: ${duration(ns(row))}`).join(", ");
}

function combining(model, sync, here) {
  const payload = `${sync.dtype}, payload ${size(sync.payload)}`, name = opName(sync.op);
  if (sync.broken) {
    return `Broken here: the ${name} is skipped and every rank takes its own partial sum for the whole; ${payload} `
      + "that should have been added.";
  }
  if (sync.among > 1) return combiningMany(sync, name, payload, Math.max(here.length, sync.among));
  const shape = dimensions(sync.shape), what = here.length === 1 ? `one rank alone, so ${shape} is whole already`
    : (COMBINES[sync.op] || "moves {shape} between {n} ranks").replace("{n}", here.length).replace("{shape}", shape);
  return `${name[0].toUpperCase()}${name.slice(1)}: ${what} (${payload}).${equation(model, sync)}`;
}

// Of a collective that a failed run never got past.
function neverWords(sync, came) {
  return `${upper(opName(sync.op))}: never, ${came} of ${came + sync.missing.length} arrived (${sync.dtype}, payload `
    + `${size(sync.payload)}).`;
}

function combiningMany(sync, name, payload, n) {
  const shape = dimensions(sync.shape);
  if (sync.op === "send" || sync.op === "receive") return `${upper(name)}: ${sync.group}: ${shape} (${payload}).`;
  const what = (COMBINES[sync.op] || "moves {shape} between {n} ranks").replace("{n}", n).replace("{shape}", shape);
  return `${upper(name)} between ${sync.group}: ${what} (${payload}).`;
}

// One number of the result with its true terms, where they were kept: y[0], or what the sync is about.
function equation(model, sync) {
  const kept = Array.from({ length: model.ranks }, (_, rank) => sync.slot("first", rank));
  const first = kept.filter(slot => slot && slot.cols);
  const sum = sync.slot("sum", -1);
  if (sync.before !== "partial" || first.length < 2 || !sum || !sum.cols) return "";
  const numbers = first.map(slot => slot.at(0, 0)), name = trainingSymbol(sync), total = sum.at(0, 0);
  if (sync.op === "all_reduce_max") {
    return ` ${name} = the largest of ${numbers.map(signed).join(", ")} = ${signed(total)}.`;
  }
  const decimals = Math.max(equationDecimals(numbers, total), sync.site === "loss.sum" ? Z_DECIMALS : 0);
  const said = x => Number.isFinite(x) ? numberWords(x, decimals) : signed(x);
  const terms = numbers.map(said).map(text => text.startsWith("−") ? `(${text})` : text);
  return ` ${name} = ${terms.join(" + ")} ${addsUp(numbers, total, decimals) ? "=" : "≈"} ${said(total)}.`;
}

// Three digits, with the minus sign of the picture.
function signed(x) {
  return three(x).replaceAll("-", "−");
}

function afterwards(model, sync) {
  if (sync.broken) return "After: the ranks now hold different numbers for what should be one, and go on with them.";
  const layers = (model.run.model || {}).layers, isLast = layers && sync.layer + 1 >= layers;
  const made = model.passes[sync.pass].text, word = made.trim() ? `: “${plain(made, 40)}”.` : ".";
  const feeds = `every rank adds the same y to its residual stream; it feeds ${isLast ? "the last norm and the head"
    : `layer ${sync.layer + 1}`}.`;
  const text = {
    attention: "every rank adds the same y to its residual stream; the norm before the MLP reads it.",
    mlp: feeds, block: feeds, embedding: "every rank holds the same x: layer 0 can start.",
    message: "the stage has what it goes on with.",
    head: (sync.after === "whole" ? "every rank has all logits and picks the same word"
      : "every rank keeps the logits of its own words") + word,
    sample: `every rank knows all winners and picks the same word${word}`,
    load: sync.after === "whole" ? "every rank holds the same array."
      : "every rank holds its own piece and will never send it: from now on activations move, not weights.",
  }[sync.part];
  return `After: ${trainingAfter(model, sync) || text || `the array is ${plain(sync.after, 30) || "there"}.`}`;
}
