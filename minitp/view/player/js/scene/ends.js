// The ends of the model: the embedding look-up, the logits, and the exchange of winners.

function embeddingScene(kit) {
  const hidden = kit.model.run.embedding === "hidden", names = [{ name: "embedding.weight", part: 0, label: "table" }];
  const table = kit.weights(names, 1, { upright: true, sweeps: false, marks: (rank, part) => lookedUp(kit, part) });
  const { config, ranks } = kit, share = shareSizes(kit, names, hidden ? 1 : 0);
  const columns = [
    { symbol: "token", focus: "tokens", shape: counted(tokensOf(kit), "token"), state: "whole: every rank knows it",
      lanes: ranks.map((rank) => readBlock(kit, rank)) },
    { symbol: "embedding table", short: "table", lead: "→", focus: "weights",
      shape: hidden ? `${config.vocab} × ${share}` : `${share} × ${config.hidden}`,
      state: kit.says(hidden ? "shard: own columns" : "shard: own rows"),
      lanes: table.map((blocks) => stackOf(blocks)) },
    hidden ? shardColumn(kit, "x", 1.6, { symbol: "own columns" }) : answerColumn(kit),
  ];
  return {
    stages: 3, columns, ...(hidden ? concatEnd(kit, "x") : sumEnd(kit, "x")),
    inset: wholesOf(kit, names, hidden ? "pieces" : "answers", true),
    says: "Each rank looks the token up in its own columns: final pieces. Laid side by side they are the row.",
  };
}

/** Of a table cut by rows: the row from the rank that has it, zeros from the others. */
function answerColumn(kit) {
  const owner = kit.sync.slot("owner", -1);
  const column = partialColumn(kit, "x", 1.6, { symbol: "its answer", state: kit.says("partial: the row, or zeros") });
  if (!owner || kit.level.bare) return column;
  const words = (rank) => wordsBlock(kit, { text: ownerWords(owner, rank), rank, stage: 1.6, width: kit.level.vec,
    anchor: "start", bare: true, muted: true });
  return { ...column, lanes: column.lanes.map((block, rank) => stackOf([block, words(rank)], 4)) };
}

/** What a rank answers: the row of the token, or of some of them, or zeros. */
function ownerWords(owner, rank) {
  const all = Array.from({ length: owner.cols }, (_, i) => owner.at(owner.rows - 1, i));
  const mine = all.filter((one) => one === rank).length;
  if (!mine) return "adds zeros";
  return all.length === 1 ? "has the row" : `has ${mine} of ${all.length} rows`;
}

/** The words that this pass reads. */
function readBlock(kit, rank) {
  const text = kit.model.passes[kit.sync.pass]?.input ?? "";
  return wordsBlock(kit, { text: text ? `“${shortened(visible(text), 24)}”` : "token ids", rank, stage: 0, height: 24,
    width: Math.min(112, kit.level.vec),
    what: { kind: "tokens", rank, symbol: "the words read", state: "whole", shape: kit.sync.shape.slice(0, -1) } });
}

/** The table row of the token that is read, where its id can be told from its text without doubt: [{y, h}]. */
function lookedUp(kit, part) {
  const text = kit.model.passes[kit.sync.pass]?.input, pieces = kit.model.pieces ?? {};
  const ids = text ? Object.keys(pieces).filter((id) => pieces[id] === text) : [];
  if (!part || part.empty || ids.length !== 1) return [];
  const [low, high] = part.at[0], id = Number(ids[0]);
  return id >= low && id < high ? [{ y: (id - low) / (high - low), h: 1 / (high - low) }] : [];
}

function headScene(kit) {
  const { sync, config } = kit, { tied } = config, byHidden = tied && kit.model.run.embedding === "hidden";
  const names = [{ name: tied ? "embedding.weight" : "head.weight", part: 0, label: tied ? "tableᵀ" : "W head" }];
  const share = shareSizes(kit, names, byHidden ? 1 : 0);
  const before = [byHidden ? ownColumns(kit, share) : xColumn(kit, { tokens: 1 }), {
    symbol: names[0].label, lead: "×", focus: "weights",
    shape: byHidden ? `${share} × ${config.vocab}` : `${config.hidden} × ${share}`,
    state: kit.says(byHidden ? "shard: own rows" : "shard: own columns"),
    lanes: kit.weights(names, 1).map((blocks) => stackOf(blocks)),
  }];
  const inset = wholesOf(kit, names, byHidden ? "rows" : "columns");
  if (sync.before === "partial") {
    const end = sync.op === "reduce_scatter" ? cutEnd(kit, "logits") : sumEnd(kit, "logits");
    return { stages: 2, columns: [...before, partialColumn(kit, "logits", 1)], ...end, inset };
  }
  const shard = shardColumn(kit, "logits", 1), bare = kit.level.bare;
  shard.lanes = shard.lanes.map((block, rank) => stackOf([block, bare ? null : bestBlock(kit, rank, 1.7)], 6));
  return {
    stages: 2, columns: [...before, shard], inset,
    ...concatEnd(kit, "logits", { extra: (rank) => (bare ? null : chosenBlock(kit, rank)) }),
    says: "Each rank knows the logits of its own part of the vocabulary: final numbers. Side by side they are the "
      + "logits of all tokens.",
  };
}

/** Of x only what meets the rank's own rows of the table. */
function ownColumns(kit, share) {
  const cut = Boolean(kit.slot("columns", 0));
  return xColumn(kit, { tokens: 1, slot: cut ? "columns" : "x", state: cut ? "shard" : "whole", shape: `1 × ${share}`,
    words: cut ? "shard: own columns of x" : "whole: own columns are used" });
}

/** A rank's best tokens with their logits, one a line. */
function bestBlock(kit, rank, stage, most = 3) {
  const best = kit.sync.slot("best", rank);
  if (!best?.rows || best.cols < 2) return null;
  const words = (i) => `${tokenWords(kit, best.at(i, 0))}  ${numberWords(best.at(i, 1), 2)}`;
  const line = (i) => wordsBlock(kit, { text: words(i), rank, stage, width: Math.max(112, kit.level.vec),
    anchor: "start", bare: true, bold: i === 0 });
  return stackOf(Array.from({ length: Math.min(kit.level.outlines ? 1 : most, best.rows) }, (_, i) => line(i)), 0);
}

/** The token that every rank picks. */
function chosenBlock(kit, rank) {
  const chosen = kit.sync.slot("chosen", -1);
  if (!chosen?.rows) return null;
  return wordsBlock(kit, { text: `next: ${tokenWords(kit, chosen.at(0, 0))}`, rank, width: Math.max(112, kit.level.vec),
    height: 26, size: LARGE, bold: true, anchor: "start",
    when: (at) => (at.moment.phase < AFTER ? 0 : between(at.moment.feed, 0.2, 0.4)),
    what: { kind: "tokens", rank, symbol: "the chosen token", state: "whole", shape: [1] } });
}

/** The winners: each rank offers its best tokens, and all see them all. */
function sampleScene(kit) {
  const offer = (rank) => bestBlock(kit, rank, 0, 4) ?? kit.share("in", rank, { state: "shard", stage: 0 });
  const seen = (rank) => wordsBlock(kit, { text: "everyone's best", rank, width: 128, height: 24,
    when: (at) => at.release });
  return {
    stages: 1,
    columns: [{ symbol: "own best tokens", short: "best", focus: "partial", shape: "(logit, id) each",
      state: kit.says("shard: of own part of the vocabulary"), lanes: kit.ranks.map(offer) }],
    ...concatEnd(kit, "winners", { instead: seen, extra: (rank) => (kit.level.bare ? null : chosenBlock(kit, rank)) }),
    inset: [],
    says: "The logits stay where they are: only each rank's best tokens are exchanged, a few bytes, and every rank "
      + "picks the same one.",
  };
}
