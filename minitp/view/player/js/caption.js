// The caption of a sync point in a phase.

function captionOf(model, sync, phase) {
  const here = sync.times.map((row, rank) => ({ ...row, rank })).filter(row => row.present);
  const head = `${opName(sync.op)} at ${sync.site}: ${sync.reason}.`;
  const waits = here.filter(row => row.ready > row.enter).map(row => `rank ${row.rank} ${duration(row.ready - row.enter)}`);
  const tail = [
    () => `Each rank computes on its own until it arrives.`,
    () => `Rank ${sync.last} came last${waits.length ? `; waiting: ${waits.join(", ")}` : ""}.`,
    () => `${dimensions(sync.shape)} ${sync.dtype}, payload ${size(sync.payload)}: ${sync.before} → ${sync.after}.`,
    () => `Every rank goes on with what is now ${sync.after}.`,
  ][phase]();
  return `${head} ${tail}`;
}
