// The MLP: W gate and W up cut by columns, the activation on final entries, W down by rows, one sum.

function mlpScene(kit) {
  const { config } = kit, names = mlpNames(kit), act = activationWord(config.activation);
  const first = kit.weights(names.first, 1, { beside: true }), down = kit.weights(names.down, 3);
  const shares = shareSizes(kit, names.down, 1), tokens = tokensOf(kit);
  return {
    stages: 4,
    columns: [
      xColumn(kit),
      { id: "up", symbol: config.gated ? "W gate, W up" : "W up", short: "W up", lead: "×", focus: "weights",
        shape: `${config.hidden} × ${shares}`, state: kit.says("shard: own columns"),
        lanes: first.map((blocks) => stackOf(blocks, 8, true)) },
      { id: "h", symbol: config.gated ? `h = ${act}(gate) · up` : `h = ${act}(up)`, short: "h", lead: "→", focus: "h",
        shape: `${tokens} × ${shares}`, state: kit.says("shard: final entries"),
          lanes: kit.ranks.map((rank) => hiddenBlock(kit, rank, 1)) },
      { id: "down", symbol: "W down", lead: "×", focus: "weights", shape: `${shares} × ${config.hidden}`,
        state: kit.says("shard: own rows"), lanes: down.map((blocks) => stackOf(blocks)) },
      partialColumn(kit, "y", 3),
    ],
    ...sumEnd(kit, "y"),
    inset: [...wholesOf(kit, names.first, "columns"), ...wholesOf(kit, names.down, "rows")],
  };
}

/** The matrices of this layer's MLP: {first: gate and up, or up; down}. */
function mlpNames(kit) {
  const site = `layers.${kit.sync.layer}.mlp`, gated = kit.config.gated;
  return {
    first: gated ? [{ name: `${site}.gate_up.weight`, part: 0, label: "W gate" },
      { name: `${site}.gate_up.weight`, part: 1, label: "W up" }] : [{ name: `${site}.up.weight`, part: 0,
        label: "W up" }],
    down: [{ name: `${site}.down.weight`, part: 0, label: "W down" }],
  };
}

/** gate, up and their product, below one another. */
function hiddenBlock(kit, rank, stage) {
  const slots = kit.config.gated ? ["gate", "up", "h"] : ["up", "h"];
  if (kit.owns("h", rank) === false) return nothingBlock(kit, rank, stage);
  const shown = kit.level.outlines ? ["h"] : slots;
  return stackOf(shown.map((slot) => labelled(kit, slot, kit.share(slot, rank,
    { state: "shard", stage: slot === "h" ? stage + 1 : stage, symbol: slot }), kit.level.label)), 6);
}

const activationWord = (name) => (name === "silu" ? "silu" : name ? "gelu" : "act");
