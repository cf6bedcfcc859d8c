// The MLP: W gate and W up cut by columns, the activation on final entries, W down by rows, one sum.

function mlpScene(kit) {
  const { config, ranks } = kit, names = mlpNames(kit), act = activationWord(config.activation);
  const first = kit.weights(names.first, 1, { beside: true }), down = kit.weights(names.down, 3);
  const share = shareSizes(kit, names.down, 1);
  return {
    stages: 4,
    columns: [
      xColumn(kit),
      { symbol: config.gated ? "W gate, W up" : "W up", short: "W up", lead: "×", focus: "weights",
        shape: `${config.hidden} × ${share}`, state: kit.says("shard: own columns"),
        lanes: first.map((blocks) => stackOf(blocks, 8, true)) },
      { symbol: config.gated ? `h = ${act}(gate) · up` : `h = ${act}(up)`, short: "h", lead: "→", focus: "h",
        shape: `${tokensOf(kit)} × ${share}`, state: kit.says("shard: final entries"),
        lanes: ranks.map((rank) => hiddenBlock(kit, rank, 1)) },
      { symbol: "W down", lead: "×", focus: "weights", shape: `${share} × ${config.hidden}`,
        state: kit.says("shard: own rows"), lanes: down.map((blocks) => stackOf(blocks)) },
      partialColumn(kit, "y", 3),
    ],
    ...sumEnd(kit, "y"),
    inset: [...wholesOf(kit, names.first, "columns"), ...wholesOf(kit, names.down, "rows")],
  };
}

/** The matrices of this layer's MLP: {first: gate and up, or up; down}, as {name: physical, part, label}. */
function mlpNames(kit) {
  const site = `layers.${kit.sync.layer}.mlp`, { gated } = kit.config;
  const up = gated ? `${site}.gate_up.weight` : `${site}.up.weight`;
  return {
    first: (gated ? ["W gate", "W up"] : ["W up"]).map((label, part) => ({ name: up, part, label })),
    down: [{ name: `${site}.down.weight`, part: 0, label: "W down" }],
  };
}

/** gate, up and their product, below one another. */
function hiddenBlock(kit, rank, stage) {
  if (kit.owns("h", rank) === false) return nothingBlock(kit, rank, stage);
  const slots = kit.level.outlines ? ["h"] : kit.config.gated ? ["gate", "up", "h"] : ["up", "h"];
  const vector = (slot) => kit.share(slot, rank, { state: "shard", stage: slot === "h" ? stage + 1 : stage });
  return stackOf(slots.map((slot) => labelled(kit, slot, vector(slot), kit.level.label)), 6);
}

const activationWord = (name) => (name === "silu" ? "silu" : name ? "gelu" : "act");
