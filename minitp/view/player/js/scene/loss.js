// The loss on logits that stay where they are: three collectives of one number a position, instead of all logits.

const Z_DECIMALS = 4;                   // Z is often just above 1, and its log is the loss

function lossScene(kit) {
  const scene = { "loss.max": largestScene, "loss.sum": exponentialsScene, "loss.target": targetScene }[kit.sync.site];
  return (scene ?? genericScene)(kit);
}

/** The largest logit of all, so that no exponential overflows. */
function largestScene(kit) {
  const words = (rank) => wordsBlock(kit, { text: "own logits", rank, stage: 0, width: 88 });
  const best = (rank) => bestBlock(kit, rank, 0.3) ?? words(rank);
  return {
    stages: 2,
    columns: [logitsColumn(kit, "own logits", "best words first", best),
      numberColumn(kit, "own largest", "a maximum of some")],
    ...numberEnd(kit, { kind: "max", symbol: "m", word: "takes the largest", needs: "the largest of all" },
      "largest", "exp(logits − m)"),
    inset: [],
  };
}

/** The sum of exponentials: softmax's denominator. */
function exponentialsScene(kit) {
  const exps = (rank) => kit.share("exps", rank, { state: "shard", stage: 0.3, symbol: "exp(logit − m)" });
  return {
    stages: 2,
    columns: [logitsColumn(kit, "exp(logits − m)", "final, m is known", exps),
      numberColumn(kit, "own sum", "partial: not the answer yet")],
    ...numberEnd(kit, { kind: "sum", symbol: "Z", word: "adds", decimals: Z_DECIMALS }, "Z", "softmax = exp ÷ Z"),
    inset: [],
  };
}

/** One rank has the target's logit, the others add 0; with it the loss is known. */
function targetScene(kit) {
  const { ranks } = kit, token = kit.slot("token", -1), owner = kit.slot("owner", -1);
  const id = token?.cols ? Math.round(token.at(0, 0)) : NaN;
  const words = id < 0 ? "doesn't count" : Number.isFinite(id) ? tokenWords(kit, id) : "its id";
  const asked = (rank) => wordsBlock(kit, { text: words, rank, stage: 0, width: 88, height: 24 });
  const has = (rank) => (owner ? (Math.round(owner.at(0, 0)) === rank ? "has its logit" : "adds 0") : "");
  return {
    stages: 2,
    columns: [{ symbol: "target", focus: "tokens", shape: "the next word", state: "whole: every rank knows it",
      lanes: ranks.map(asked) },
    numberColumn(kit, "z − m of its logit z", "partial: the logit, or 0", has)],
    ...numberEnd(kit, { kind: "sum", symbol: "z − m", word: "adds" }, "z − m", "backward: softmax − target", lossWords(kit)),
    inset: [],
  };
}

function logitsColumn(kit, symbol, shape, make) {
  return { symbol, focus: "weights", shape, state: kit.says("shard: own words"), lanes: kit.ranks.map(make) };
}

/** The last column before the gate: one number of each rank, of the position that is shown; `says(rank)` below it. */
function numberColumn(kit, symbol, state, says = () => "") {
  const lane = (rank) => numberBlock(kit, "in", rank, { state: "partial", stage: 1, kind: "term", symbol }, says(rank));
  return { symbol, lead: "→", focus: "partial", shape: shapeWords(kit.sync.shape), state: kit.says(state),
    lanes: kit.ranks.map(lane) };
}

/** The gate of one number and its result; `words`: what can be said once it is known. */
function numberEnd(kit, gate, symbol, feeds, words = "") {
  const after = (at) => (at.moment.phase < AFTER ? 0 : between(at.moment.feed, 0.2, 0.4)), { bare } = kit.level;
  const known = { state: "whole", when: (at) => at.release, kind: "out", symbol };
  const out = (rank) => numberBlock(kit, "out", rank, known);
  const said = (rank) => words && !bare && wordsBlock(kit, { text: words, rank, when: after, height: 26, bold: true,
    width: textWidth(words, SMALL, kit.look.font, true) + 20 });
  return {
    gate, feeds,
    result: { symbol, focus: "result", shape: shapeWords(kit.sync.shape), state: "whole: same on every rank",
      lanes: kit.ranks.map((rank) => stackOf([out(rank), said(rank)], 6)) },
  };
}

/** One number: its cell, the number, and perhaps a word below. */
function numberBlock(kit, slot, rank, o, says = "") {
  const array = kit.slot(slot, rank), value = array?.cols ? array.at(array.rows - 1, 0) : null;
  if (kit.owns(slot, rank) === false) return nothingBlock(kit, rank, o.stage ?? 0);
  const timing = o.when ? { when: o.when } : { stage: o.stage };
  const text = value === null ? "one number"
    : numberWords(value, Math.max(kit.sync.site === "loss.sum" ? Z_DECIMALS : 0, decimalsFor([value])));
  const bold = value !== null;
  const number = wordsBlock(kit, { text, rank, width: 80, bare: true, bold, anchor: "start", ...timing });
  const line = stackOf([kit.vec(slot, rank, { ...o, width: 20 }), number], 8, true);
  const below = says && !kit.level.bare && wordsBlock(kit, { text: says, rank, width: 96, bare: true, muted: true,
    anchor: "start", ...timing });
  return stackOf([line, below], 4);
}

/** loss = log Z − (z − m), with its numbers: as many digits as it takes for the shown ones to give the shown loss. */
function lossWords(kit) {
  const number = (slot) => kit.slot(slot, -1)?.at(0, 0);
  const [Z, z, loss] = ["total", "out", "loss"].map(number);
  if (![Z, z, loss].every(Number.isFinite)) return "loss = log Z − (z − m)";
  const least = decimalsFor([loss]), rounded = (x, decimals) => Number(x.toFixed(decimals));
  const isTrue = (decimals) => rounded(Math.log(rounded(Z, decimals)) - rounded(z, decimals), least)
    === rounded(loss, least);
  const decimals = [0, 1, 2, 3].map((more) => Math.max(least, Z_DECIMALS) + more).find(isTrue) ?? least + 3;
  const words = (x) => numberWords(x, decimals);
  return `loss = log ${words(Z)} − ${z < 0 ? `(${words(z)})` : words(z)} = ${numberWords(loss, least)}`;
}
