// Where everything is at (sync, phase, t): who still computes, who has arrived, how far the collective is.

const COMPUTE = 0, ARRIVING = 1, COMBINE = 2, AFTER = 3;
const TRAVEL = 0.16;                    // of the arriving phase: from the lane to the gate

const ROOTED = new Set(["scatter", "broadcast"]);

/**
 * {ranks: [{computed, travel, arrived, wait, moving, last, there}], arrived, needed, combine, release, feed}.
 * `computed`, `travel`: 0..1. In the steps clock arrivals are equally far apart in their true order; in the measured
 * one as far as they were. What never ended, since the run failed, stays as it is once those who came are there.
 */
function momentOf(sync, state) {
  const stays = sync.never && state.phase > ARRIVING, [phase, t] = stays ? [ARRIVING, 1] : [state.phase, clamp01(state.t)];
  const times = sync.times;
  const there = times.map((time) => Boolean(time && time.present));
  const taking = times.map((_, rank) => rank).filter((rank) => there[rank]);
  const enters = taking.map((rank) => times[rank].enter);
  const first = Math.min(...enters), span = Math.max(...enters) - first;
  const order = new Map(taking.slice().sort((a, b) => times[a].enter - times[b].enter || a - b)
    .map((rank, i) => [rank, i]));
  const steps = state.clock !== "measured", apart = Math.max(1, taking.length - 1);
  const ranks = times.map((time, rank) => {
    if (!there[rank]) return { there: false, computed: 0, travel: 0, arrived: false, wait: 0, moving: 0, last: false };
    const late = steps ? order.get(rank) / apart : span ? (time.enter - first) / span : 0;
    const arrive = 0.2 + 0.7 * late;
    const whole = Math.max(1, time.enter - time.begin);
    const share = steps ? 1 - 0.5 * late : clamp01((first - time.begin) / whole);
    const computed = phase === COMPUTE ? t * share
      : phase === ARRIVING ? mix(share, 1, clamp01(t / (arrive - TRAVEL))) : 1;
    const travel = phase === ARRIVING ? between(t, arrive - TRAVEL, arrive) : phase > ARRIVING ? 1 : 0;
    return {
      there: true, computed, travel, arrived: travel >= 1, late,
      wait: Math.max(0, time.ready - time.enter), moving: Math.max(0, time.leave - time.ready),
      last: rank === sync.last, compute: Math.max(0, time.enter - time.begin),
    };
  });
  return {
    ranks, phase, needed: taking.length + sync.missing.length, arrived: ranks.filter((rank) => rank.arrived).length,
    combine: phase === COMBINE ? t : phase > COMBINE ? 1 : 0,
    release: phase === AFTER ? between(t, 0, 0.45) : 0,
    feed: phase === AFTER ? between(t, 0.45, 1) : 0,
    cut: clamp01(state.cut ?? 1),
  };
}

/** Whether a rank stands at the gate and has to wait, until the collective begins. */
const isWaiting = (sync, moment, rank) => moment.phase === ARRIVING && moment.ranks[rank].arrived && !sync.broken
  && moment.ranks[rank].wait > 0;

/** Why a rank has no part in a sync. */
const absentWords = ({ missing, among }, rank) =>
  (missing.includes(rank) ? "never came" : among ? "elsewhere" : "takes no part");

/** A rank's state in a few words. */
function statusOf(sync, moment, rank) {
  const at = moment.ranks[rank];
  if (!at.there) return absentWords(sync, rank);
  if (at.computed < 1) return !ROOTED.has(sync.op) ? "computing" : rank === sync.root ? "reading" : "getting ready";
  if (sync.broken) return moment.phase < COMBINE ? "does not wait" : "goes on alone";
  if (moment.needed === 1) return moment.phase < AFTER ? "waits for none" : "no wait";
  if (moment.phase <= ARRIVING) {
    if (!at.arrived) return "arriving";
    if (at.wait > 0) return `waiting ${duration(at.wait)}`;
    return at.last ? "last to arrive" : "no wait";
  }
  if (moment.phase === COMBINE) return `moving ${duration(at.moving)}`;
  if (at.wait > 0) return `waited ${duration(at.wait)}`;
  return at.last ? "came last" : "no wait";
}
