// What a training step's parts compute, give and feed: word for word minitp.view.training_text.

const NOTHING_SENT = "dy is whole on every rank, so behind the row cut (g) nothing is sent";
const TRAINING_WORK = {
  "loss.max": "each rank looks for the largest of its own logits, at every position.",
  "loss.sum": "each rank takes exp(logit − m) of its own logits and adds them up: one number a position.",
  "loss.target": "the rank that has the target's logit z puts in z − m, the others put in 0.",
  d_mlp: `${NOTHING_SENT}: each rank multiplies dy by its own rows of W down, turned: its own entries of dh. Times `
    + "the activation's slope, then by its own columns of the first cut, turned: a partial sum of dx.",
  d_attention: `${NOTHING_SENT}: each rank takes dy back through its own rows of Wo, its own heads and its own `
    + "columns of Wq, Wk and Wv: a partial sum of dx, one for all three.",
  d_block: `${NOTHING_SENT}: each rank takes dy back through its heads and through its part of the MLP, and adds `
    + "the two partial sums: one sync for both.",
  copies: "a kv head that several ranks hold has on each the gradient of that rank's query heads alone. Each lays its "
    + "own heads into one buffer of all kv heads, zeros where it holds none.",
  norm: "each rank adds up the squares of its own gradients, every parameter on one rank only.",
};

const trainingKey = sync => sync.part === "loss" ? sync.site : sync.part;

function trainingWork(sync) {
  if (sync.part !== "d_head") return TRAINING_WORK[trainingKey(sync)] || "";
  if (sync.before === "partial") {
    return "each rank multiplies the gradient of its own logits, softmax − target, by its own rows of the vocabulary: "
      + "a partial sum of dx.";
  }
  return sync.site === "head.input"
    ? "each rank multiplies the gradient of all logits by its own columns of the table: its own columns of dx."
    : "each rank has the gradient of its own logits: softmax − target.";
}

// What the equation of a sync is about.
function trainingSymbol({ part, site }) {
  if (part === "loss") return { "loss.sum": "Z", "loss.target": "z − m" }[site] || "m";
  return { norm: "Σ g²", copies: "dW[0]" }[part] || (part.startsWith("d_") ? "dx[0]" : "y[0]");
}

function trainingAfter(model, sync) {
  const { layers, parallel_block: isParallel } = model.run.model || {}, number = trainingResult(sync);
  const block = (layer, part) => isParallel ? `block ${layer}` : `the ${part} of layer ${layer}`;
  const stream = to => "every rank has the same dx, takes it back through the norm and adds dy, which came by the "
    + `residual path; it feeds ${to}. dW = dyᵀ x of its own shards stays with each rank: nothing is sent.`;
  const shown = number ? ` (${number} at the position shown)` : "";
  if (sync.part === "d_head") {
    return sync.site === "head" && sync.before !== "partial"
      ? "every rank has the gradient of all logits: what its own columns of the table met."
      : `every rank has the same dx; through the last norm it feeds ${block(layers - 1, "MLP")}. dW stays with each `
        + "rank: nothing is sent.";
  }
  const below = sync.layer > 0 ? block(sync.layer - 1, "MLP")
    : "the embedding, where each rank adds to its own part of the table";
  return {
    "loss.max": "every rank subtracts the same m, so that no exponential overflows.",
    "loss.sum": "every rank knows softmax's denominator; its own exponentials divided by it are all it needs.",
    "loss.target": `every rank knows the same loss, log Z − (z − m)${shown}${model.ranks === 1 ? ""
      : "; no rank ever had all logits"}.`,
    d_mlp: stream(`the attention of layer ${sync.layer}`), d_attention: stream(below), d_block: stream(below),
    copies: "every holder of a copy has the same gradient, so the copies stay equal.",
    norm: `every rank knows the same norm${number ? ` (${number})` : ""}, shortens its gradients by it where it is too `
      + "long, and updates m, v and W of its own shards: nothing is sent.",
  }[trainingKey(sync)] || "";
}

// The loss, or the norm, in words.
function trainingResult({ part, slot }) {
  const found = part === "loss" ? slot("loss", -1) : part === "norm" ? slot("sum", -1) : null;
  if (!found || !found.cols || !found.rows) return "";
  const value = found.at(found.rows - 1, 0);
  return signed(part === "loss" ? value : Math.sqrt(Math.max(value, 0)));
}

// Of a forward sync inside the backward pass: why it is there.
function againWords(model, sync) {
  return model.passes[sync.pass].phase === "backward" && ["attention", "mlp", "block"].includes(sync.part)
    ? "once more, as only the block's input was kept: " : "";
}
