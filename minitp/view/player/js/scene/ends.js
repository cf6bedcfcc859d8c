// The ends of the model: the embedding look-up, the logits, and the exchange of winners.

function embeddingScene(kit) {
  const hidden = kit.model.run.embedding === "hidden", names = [{ name: "embedding.weight", part: 0, label: "table" }];
  const table = kit.weights(names, 1, { upright: true, sweeps: false, marks: (rank, part) => lookedUp(kit, part) });
  const { config, ranks, sync } = kit, tokens = tokensOf(kit);
  const columns = [
    { id: "tokens", symbol: "token", focus: "tokens", shape: counted(tokens, "token"),
      state: "whole: every rank knows it",
      lanes: ranks.map((rank) => readBlock(kit, rank)) },
    { id: "table", symbol: "embedding table", short: "table", lead: "→", focus: "weights",
      shape: hidden ? `${config.vocab} × ${shareSizes(kit, names, 1)}`
        : `${shareSizes(kit, names, 0)} × ${config.hidden}`,
      state: kit.says(hidden ? "shard: own columns" : "shard: own rows"),
        lanes: table.map((blocks) => stackOf(blocks)) },
  ];
  const inset = wholesOf(kit, names, hidden ? "pieces" : "answers", true);
  if (hidden) {
    return { stages: 3, columns: [...columns, shardColumn(kit, "x", 1.6, { symbol: "own columns" })], ...concatEnd(kit,
      "x"), inset,
      says: "Each rank looks the token up in its own columns: final pieces. Laid side by side they are the row." };
  }
  const owner = sync.slot("owner", -1), last = owner ? owner.at(owner.rows - 1, owner.cols - 1) : null;
  const partial = partialColumn(kit, "x", 1.6, { symbol: "its answer", state: kit.says("partial: the row, or zeros") });
  if (last !== null && !kit.level.bare) {
    partial.lanes = partial.lanes.map((block, rank) => stackOf([block, wordsBlock(kit, { bare: true, muted: true, rank,
      stage: 1.6,
      anchor: "start", width: kit.level.vec, text: ownerWords(owner, rank) })], 4));
  }
  return { stages: 3, columns: [...columns, partial], ...sumEnd(kit, "x"), inset };
}

/** What a rank answers: the row of the token, or of some of them, or zeros. */
function ownerWords(owner, rank) {
  const all = Array.from({ length: owner.rows * owner.cols }, (_, i) => owner.at(Math.floor(i / owner.cols),
    i % owner.cols));
  const mine = all.filter((one) => one === rank).length;
  if (!mine) return "adds zeros";
  return all.length === 1 ? "has the row" : `has ${mine} of ${all.length} rows`;
}

/** The words that this pass reads: the last ones, where they are many. */
function readBlock(kit, rank) {
  const pass = kit.model.passes[kit.sync.pass], text = pass?.input ?? "", width = Math.min(112, kit.level.vec);
  return wordsBlock(kit, { text: text ? `“${shortened(visible(text), 24)}”` : "token ids", state: "whole", rank,
    stage: 0, width,
    height: 24, what: { kind: "tokens", rank, symbol: "the words read", shape: kit.sync.shape.slice(0, -1) } });
}

/** The table row of the token that is read, where its id can be told from its text without doubt. */
function lookedUp(kit, part) {
  const text = kit.model.passes[kit.sync.pass]?.input, pieces = kit.model.pieces ?? {};
  const ids = text ? Object.keys(pieces).filter((id) => pieces[id] === text) : [];
  if (!part || part.empty || ids.length !== 1) return null;
  const [low, high] = part.at[0], id = Number(ids[0]);
  return id >= low && id < high ? [{ y: (id - low) / (high - low), h: 1 / (high - low) }] : null;
}

function headScene(kit) {
  const { sync, config, ranks } = kit, tied = config.tied, byHidden = tied && kit.model.run.embedding === "hidden";
  const names = [{ name: tied ? "embedding.weight" : "head.weight", part: 0, label: tied ? "tableᵀ" : "W head" }];
  const weights = kit.weights(names, 1), partial = sync.before === "partial", shares = shareSizes(kit, names, byHidden
    ? 1 : 0);
  const before = [
    byHidden ? xColumn(kit, { tokens: 1, slot: kit.slot("columns", 0) ? "columns" : "x", state: kit.slot("columns", 0)
      ? "shard"
      : "whole", shape: `1 × ${shares}`, words: kit.slot("columns", 0)
      ? "shard: own columns of x" : "whole: own columns are used" }) : xColumn(kit, { tokens: 1 }),
    { id: "head", symbol: names[0].label, lead: "×", focus: "weights", state: kit.says(byHidden ? "shard: own rows"
      : "shard: own columns"),
      shape: byHidden ? `${shares} × ${config.vocab}` : `${config.hidden} × ${shares}`,
        lanes: weights.map((blocks) => stackOf(blocks)) },
  ];
  const inset = wholesOf(kit, names, byHidden ? "rows" : "columns");
  if (partial) {
    const end = sync.op === "reduce_scatter" ? cutEnd(kit, "logits") : sumEnd(kit, "logits");
    return { stages: 2, columns: [...before, partialColumn(kit, "logits", 1)], ...end, inset };
  }
  const shard = shardColumn(kit, "logits", 1);
  shard.lanes = shard.lanes.map((block, rank) => stackOf([block, kit.level.bare ? null : bestBlock(kit, rank, 1.7)],
    6));
  return { stages: 2, columns: [...before, shard], inset,
    ...concatEnd(kit, "logits", { extra: (rank) => (kit.level.bare ? null : chosenBlock(kit, rank)) }),
    says: "Each rank knows the logits of its own part of the vocabulary: final numbers. Side by side they are the "
      + "logits of all tokens." };
}

/** A rank's best tokens with their logits, one a line. */
function bestBlock(kit, rank, stage, most = 3) {
  const best = kit.sync.slot("best", rank);
  if (!best || !best.rows || best.cols < 2) return null;
  const rows = Math.min(kit.level.outlines ? 1 : most, best.rows), found = [];
  for (let i = 0; i < rows; i++) {
    found.push(wordsBlock(kit, { bare: true, rank, stage, anchor: "start", width: Math.max(112, kit.level.vec),
      bold: i === 0, text: `${tokenWords(kit, best.at(i, 0))}  ${numberWords(best.at(i, 1), 2)}` }));
  }
  return stackOf(found, 0);
}

function chosenBlock(kit, rank) {
  const chosen = kit.sync.slot("chosen", -1);
  if (!chosen?.rows) return null;
  return wordsBlock(kit, { rank, state: "whole", bold: true, size: LARGE, height: 26, anchor: "start",
    width: Math.max(112, kit.level.vec),
    when: (at) => (at.moment.phase < AFTER ? 0 : between(at.moment.feed, 0.2, 0.4)),
    text: `next: ${tokenWords(kit, chosen.at(0, 0))}`, what: { kind: "tokens", rank, symbol: "the chosen token",
      shape: [1] } });
}

/** After a reduce-scatter: the sum, and of it each rank its own part. */
function cutEnd(kit, symbol) {
  const { sync, ranks } = kit, shapes = ranks.map((rank) => sync.slot("out", rank)?.shape).filter(Boolean);
  return {
    gate: { kind: "cut", slot: "in", symbol, word: "adds, then cuts" },
    result: { id: "result", symbol: `${symbol} shard`, focus: "result", shape: shapes.length ? shapeWords(shapes[0])
      : "its part",
      state: kit.says("shard: summed, own part"), lanes: ranks.map((rank) => stackOf([kit.share("out", rank,
        { state: "shard",
        when: (at) => at.release, symbol, kind: "out" })])) },
    feeds: sync.part === "head" ? "exchange of the winners" : feedsWords(kit),
  };
}

/** The winners: each rank offers its best tokens, and all see them all. */
function sampleScene(kit) {
  const { ranks } = kit;
  const offers = ranks.map((rank) => bestBlock(kit, rank, 0, 4) ?? kit.share("in", rank, { state: "shard", stage: 0,
    symbol: "winners" }));
  const end = concatEnd(kit, "winners", { extra: (rank) => (kit.level.bare ? null : chosenBlock(kit, rank)),
    instead: (rank) => wordsBlock(kit, { text: "everyone's best", rank, state: "whole", width: 128, height: 24,
      when: (at) => at.release }) });
  return {
    stages: 1, columns: [{ id: "best", symbol: "own best tokens", short: "best", focus: "partial",
      shape: "(logit, id) each", lanes: offers,
      state: kit.says("shard: of own part of the vocabulary") }],
    ...end, inset: [],
    says: "The logits stay where they are: only each rank's best tokens are exchanged, a few bytes, and every rank "
      + "picks the same one.",
  };
}
