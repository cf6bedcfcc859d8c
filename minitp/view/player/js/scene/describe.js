// The picture in a sentence or two, for those who don't see it.

function describeMoment(model, state) {
  const sync = model.sync(state.sync), moment = momentOf(sync, { ...state, t: state.t ?? 1 });
  const ranks = sync.times.map((_, rank) => rank);
  const part = `${sync.part.startsWith("d_") ? "backward of " : ""}${partName(sync.part)}`;
  const where = sync.layer >= 0 ? `${part} of layer ${sync.layer}` : part;
  const statuses = ranks.slice(0, 8)
    .map((rank) => `${model.lanes[rank] ?? `rank ${rank}`} ${statusOf(sync, moment, rank)}`).join(", ");
  const more = ranks.length > 8 ? ` and ${counted(ranks.length - 8, "more rank")}` : "";
  const what = `${where}, ${opName(sync.op)} of ${dimensions(sync.shape)} over ${sync.among
    ? counted(sync.among, "device") : counted(ranks.length, "rank")}`;
  return [`${what}: ${statuses}${more}.`, stageWords(sync, moment, state), sumWords(sync, moment)].filter(Boolean).join(" ");
}

function stageWords(sync, moment, state) {
  if (moment.cut < 1) return "The whole matrices are shown, in their owners' colors, as they are cut.";
  if (sync.broken) return "The sum is skipped: each rank takes its own partial for the whole.";
  if (moment.phase === COMPUTE) return "The ranks compute.";
  if (sync.never && state.phase >= ARRIVING) {
    return `${moment.arrived} of ${moment.needed} have arrived. ${sync.failed}`;
  }
  if (moment.phase === ARRIVING) return `${moment.arrived} of ${moment.needed} have arrived.`;
  if (moment.phase === COMBINE) return `All have arrived: ${opKind(sync.op)}.`;
  return sync.after ? `Afterwards it is ${sync.after}.` : "It is over.";
}

/** The equation of one element, where its terms are known. */
function sumWords(sync, moment) {
  if (sync.before !== "partial" || moment.phase < COMBINE || sync.broken) return "";
  const index = entryOf(sync.slot), sum = sumValue(sync, index);
  const values = sync.times.map((_, rank) => termValue(sync, rank, index));
  if (sum === null || values.some((value) => value === null)) return "";
  if (sync.op === "all_reduce_max") return `The largest: ${numberWords(sum, decimalsFor(values))}.`;
  const decimals = equationDecimals(values, sum), sign = addsUp(values, sum, decimals) ? "=" : "≈";
  const terms = values.map((value) => numberWords(value, decimals)).join(" + ");
  return `Element ${index}: ${terms} ${sign} ${numberWords(sum, decimals)}.`;
}
