// The backward pass, from right to left: the gradient comes in whole, goes through the same cuts turned round, and is a
// partial sum in front of the column cut, where the forward sent nothing. Behind the row cut nothing is sent.

const GRADIENTS_TALL = 52;              // px of a weight where its gradient stands below it

/** f of a layer's MLP: dy · W downᵀ → dh, times the activation's slope → W upᵀ → dx partial. */
function mlpBackScene(kit) {
  const { config, ranks } = kit, names = mlpNames(kit), act = activationWord(config.activation);
  const share = shareSizes(kit, names.down, 1), first = withGradients(kit, turnedNames(names.first), 3, ["gate", "up"]);
  const down = withGradients(kit, turnedNames(names.down), 1, ["down"]);
  return {
    stages: 4, backward: true,
    columns: [
      dyColumn(kit),
      { symbol: "W downᵀ", lead: "×", focus: "weights", shape: `${config.hidden} × ${share}`,
        state: kit.says("shard: own rows, turned: columns"), lanes: down },
      { symbol: `dh, × ${act}′`, short: "dh", lead: "→", focus: "h", shape: `${tokensOf(kit)} × ${share}`,
        state: kit.says("shard: final entries"), lanes: ranks.map((rank) => hiddenBackBlock(kit, rank, 1.5)) },
      { symbol: config.gated ? "W gateᵀ, W upᵀ" : "W upᵀ", short: "W upᵀ", lead: "×", focus: "weights",
        shape: `${share} × ${config.hidden}`, state: kit.says("shard: own columns, turned: rows"), lanes: first },
      partialColumn(kit, "dx", 3),
    ],
    ...gradientEnd(kit),
    inset: [...wholesOf(kit, turnedNames(names.down), "columns", true),
      ...wholesOf(kit, turnedNames(names.first), "rows", true)],
  };
}

/** f of a layer's attention: dy · W oᵀ → own heads' gradients → those of q, k, v → W qkvᵀ → dx partial. */
function attentionBackScene(kit) {
  const { config, ranks } = kit, names = attentionNames(kit), own = kit.says("shard: own heads");
  const out = withGradients(kit, turnedNames(names.o), 1, ["o"]);
  const qkv = withGradients(kit, turnedNames(names.qkv), 4, ["q", "k", "v"]);
  const inner = (make) => ranks.map((rank) => (kit.owns("dheads", rank) === false ? nothingBlock(kit, rank, 2)
    : make(rank)));
  return {
    stages: 5, backward: true,
    columns: [
      dyColumn(kit),
      { symbol: "W oᵀ", lead: "×", focus: "weights", shape: `${config.hidden} × ${shareSizes(kit, names.o, 1)}`,
        state: kit.says("shard: own rows, turned: columns"), lanes: out },
      { symbol: "d heads", lead: "→", focus: "heads", shape: headsWords(kit), state: own,
        lanes: inner((rank) => kit.perHead("dheads", rank, { state: "shard", stage: 2, symbol: "d heads" })) },
      { symbol: "dq, dk, dv", lead: "→", focus: "q", shape: "through the softmax", state: own,
        lanes: inner((rank) => headBackRows(kit, rank, 3)) },
      { symbol: "W qᵀ, W kᵀ, W vᵀ", short: "W qkvᵀ", lead: "×", focus: "weights", shape: `heads × ${config.hidden}`,
        state: kit.says("shard: own columns, turned: rows"), lanes: qkv },
      partialColumn(kit, "dx", 4),
    ],
    ...gradientEnd(kit),
    inset: [...wholesOf(kit, turnedNames(names.o), "columns", true),
      ...wholesOf(kit, turnedNames(names.qkv), "rows", true)],
  };
}

/** Of a parallel block: back through the heads and through the MLP, the two partials added before one sync. */
function blockBackScene(kit) {
  const { config, ranks, level } = kit, attention = attentionNames(kit), mlp = mlpNames(kit);
  const half = { ...level, tall: level.outlines ? level.tall / 2 : 48, cell: Math.min(level.cell, 3) };
  const small = sceneKit(kit.model, kit.sync, kit.look, half, kit.know), turned = { beside: true, upright: true };
  const weights = (wanted, stage) => small.weights(turnedNames(wanted), stage, turned);
  const [out, qkv, down, first] = [weights(attention.o, 1), weights(attention.qkv, 3), weights(mlp.down, 1),
    weights(mlp.first, 3)];
  const pairs = (above, below) => ranks.map((rank) => stackOf([above(rank), below(rank)], 12));
  const heads = (rank) => (kit.owns("dheads", rank) === false ? nothingBlock(kit, rank, 2)
    : small.perHead("dheads", rank, { state: "shard", stage: 2, symbol: "d heads" }));
  return {
    stages: 4, backward: true,
    columns: [
      dyColumn(kit),
      { symbol: "W oᵀ, W downᵀ", short: "W outᵀ", lead: "×", focus: "weights", shape: `${config.hidden} × share`,
        state: kit.says("shard: own rows, turned"), lanes: pairs((rank) => ownOrNone(kit, out[rank], 1, true),
          (rank) => stackOf(down[rank], 6, true)) },
      { symbol: "d heads; dh", lead: "→", focus: "h", shape: "", state: kit.says("shard: own heads, own dh"),
        lanes: pairs(heads, (rank) => small.share("dh", rank, { state: "shard", stage: 2 })) },
      { symbol: "W qkvᵀ, W upᵀ", short: "W inᵀ", lead: "×", focus: "weights", shape: `share × ${config.hidden}`,
        state: kit.says("shard: own columns, turned"), lanes: pairs((rank) => ownOrNone(kit, qkv[rank], 3, true),
          (rank) => stackOf(first[rank], 6, true)) },
      partialColumn(kit, "dx", 3, { symbol: "attention + MLP", short: "both",
        state: kit.says("partial: two partials added, no sync") }),
    ],
    ...gradientEnd(kit),
    inset: [...wholesOf(kit, turnedNames(attention.o), "columns", true),
      ...wholesOf(kit, turnedNames(mlp.down), "columns", true),
      ...wholesOf(kit, turnedNames(attention.qkv), "rows", true),
      ...wholesOf(kit, turnedNames(mlp.first), "rows", true)],
  };
}

/** From the gradient of the ranks' logits to that of the head's input; a table cut along hidden takes two gathers. */
function headBackScene(kit) {
  const { sync, config, ranks } = kit, table = config.tied ? "embedding" : "head";
  const names = [{ name: `${table}.weight`, part: 0, label: config.tied ? "table" : "W headᵀ" }];
  const own = kit.says("shard: (softmax − target) ÷ tokens"), isInput = sync.site === "head.input";
  const logits = (stage) => ranks.map((rank) => kit.share("dlogits", rank, { symbol: "d logits", stage,
    state: isInput ? "whole" : "shard" }));
  const share = shareSizes(kit, names, isInput ? 1 : 0), end = { feeds: feedsWords(kit), backward: true };
  if (sync.before !== "partial" && !isInput) {
    return { stages: 1, columns: [shardColumn(kit, "d logits", 0, { symbol: "d logits", lead: "", state: own })],
      ...concatEnd(kit, "d logits"), inset: [], ...end,
      says: "The table is cut along hidden: each rank's columns met every word, so each rank needs the gradient of all "
        + "logits." };
  }
  const columns = [{ symbol: "d logits", focus: "x", shape: `${tokensOf(kit)} × ${isInput ? config.vocab : share}`,
    state: isInput ? "whole: just gathered" : own, lanes: logits(0) },
  { symbol: names[0].label, lead: "×", focus: "weights", shape: isInput ? `${config.vocab} × ${share}`
    : `${share} × ${config.hidden}`, lanes: withGradients(kit, names, 1, [table]),
  state: kit.says(isInput ? "shard: own columns" : "shard: own columns, turned: rows") }];
  if (!isInput) {
    return { stages: 2, columns: [...columns, partialColumn(kit, "dx", 1)], ...gradientEnd(kit), ...end,
      inset: wholesOf(kit, names, "rows", true) };
  }
  return { stages: 2, columns: [...columns, shardColumn(kit, "dx", 1)], ...concatEnd(kit, "dx"), ...end,
    inset: wholesOf(kit, names, "pieces", true),
    says: "Each rank has its own columns of dx: final numbers. Side by side they are the whole." };
}

/** What arrives, whole on every rank: the row cut's backward, g, has nothing to send. */
function dyColumn(kit) {
  const { level } = kit, lines = wrapText("g: nothing to send", level.vec, SMALL, kit.look.font);
  const line = (rank, text) => wordsBlock(kit, { text, rank, width: level.vec, anchor: "start", bare: true, muted: true,
    stage: 0 });
  const sent = (rank) => stackOf(lines.map((text) => line(rank, text)), 0);
  const vector = (rank) => kit.vec("dy", rank, { state: "whole", stage: 0, symbol: "dy" });
  return {
    symbol: "dy", focus: "x", shape: `${tokensOf(kit)} × ${kit.config.hidden}${tokensOf(kit) > 1 ? ", last row" : ""}`,
    state: kit.alone ? "whole" : level.outlines ? "whole: g, nothing to send" : "whole: same on every rank",
    lanes: kit.ranks.map((rank) => (level.outlines || kit.alone ? vector(rank)
      : stackOf([vector(rank), sent(rank)], 4))),
  };
}

/** The same matrices, named as turned round. */
const turnedNames = (names) => names.map((one) => ({ ...one, label: `${one.label}ᵀ` }));

/** The weights as they are stored, which is how the backward meets them; below each its gradient, filling: by rank. */
function withGradients(kit, wanted, stage, slots) {
  const { level } = kit, tall = level.outlines ? level.tall : GRADIENTS_TALL;
  const small = { ...level, tall, cell: Math.min(level.cell, 5) };
  const half = sceneKit(kit.model, kit.sync, kit.look, small, kit.know);
  const weights = half.weights(wanted, stage, { beside: true, upright: true, named: false });
  return weights.map((blocks, rank) => {
    if (blocks.every((block) => block.kind === "words")) return nothingBlock(kit, rank, stage);
    if (level.outlines) return stackOf(blocks, 6, true);
    const grown = blocks.map((block, i) => gradientBlock(kit, slots[i], rank, block));
    const line = (label, row) => labelled(kit, label, stackOf(row, 6, true), 26);
    return stackOf([line("W", blocks), line("dW", grown)], 6);
  });
}

/** A shard's gradient, as large as its weight: it fills after the sum, from what the rank has. */
function gradientBlock(kit, name, rank, { w, h, kind }, o = {}) {
  if (kind === "words") return wordsBlock(kit, { text: "", rank, width: w, height: h, bare: true });
  const array = kit.slot(`dW ${name}`, rank);
  return matrixBlock(kit, {
    w, h, array, rank, state: kit.alone ? "whole" : "shard", key: `gradient ${name}|${rank}|${kit.sync.pass}`,
    largest: kit.largest(`dW ${name}`), words: array ? "" : "dW", sweeps: false, kind: "gradient",
    when: (at) => (at.moment.phase < AFTER ? 0 : at.moment.feed),
    what: { kind: "vector", rank, slot: `dW ${name}`, symbol: `dW ${name}`, state: "shard", shape: array?.shape }, ...o,
  });
}

/** dh, then what the activation's slope makes of it: the gradients of gate and up. */
function hiddenBackBlock(kit, rank, stage) {
  if (kit.owns("dh", rank) === false) return nothingBlock(kit, rank, stage);
  const slots = kit.level.outlines ? ["dh"] : kit.config.gated ? ["dh", "dgate", "dup"] : ["dh", "dup"];
  const vector = (slot) => kit.share(slot, rank, { state: "shard", stage: slot === "dh" ? stage : stage + 0.5 });
  const names = { dh: "dh", dgate: "d gate", dup: "d up" };
  return stackOf(slots.map((slot) => labelled(kit, names[slot], vector(slot), kit.level.label + 10)), 6);
}

/** dq, dk, dv: one row per head, below one another. */
function headBackRows(kit, rank, stage) {
  const slots = kit.level.outlines ? ["dq"] : ["dq", "dk", "dv"];
  const rows = (slot) => kit.perHead(slot, rank, { state: "shard", stage, symbol: slot });
  return stackOf(slots.map((slot) => labelled(kit, slot, rows(slot), 24)), 6);
}

/** After the sum: dx on every rank, through the norm, and the gradient that came by the residual path added. */
function gradientEnd(kit) {
  const { sync, ranks, level } = kit, state = sync.broken ? "partial" : "whole";
  const streams = sync.part !== "d_head" && !level.bare;
  const after = (from, to) => (at) => (at.moment.phase < AFTER ? 0 : between(at.moment.feed, from, to));
  const out = (rank) => kit.vec("out", rank, { state, when: (at) => at.release, symbol: "dx", kind: "out" });
  const row = (label, block) => labelled(kit, label, block, 40);
  const rows = (rank) => [
    row("dx", out(rank)),
    row("dy", kit.vec("dy", rank, { state: "whole", when: after(0, 0.4), symbol: "dy, by the residual path" })),
    row("dy′", kit.vec("next", rank, { state, when: after(0.4, 0.8),
      symbol: "dy′ = norm′(dx) + dy: dy of the part below" })),
  ];
  const lane = (rank) => (streams ? stackOf(rows(rank).slice(0, level.outlines ? 1 : 3), 6) : stackOf([out(rank)]));
  return {
    gate: { kind: "sum", symbol: "dx", word: "adds: f" },
    result: {
      symbol: streams && !level.outlines ? "dy′ = norm′(dx) + dy" : "dx", short: "dx", focus: "result",
      shape: shapeWords(sync.shape), lanes: ranks.map(lane), state: "whole: same on every rank",
    },
    feeds: feedsWords(kit),
  };
}
