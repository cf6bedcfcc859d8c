// The way from what is shown to what was asked for: short, through the phases, then still. Far jumps and readers who
// asked for less motion get no way at all.

const FARTHEST = 8;                                    // phases: two sync points

function createMotion() {
  let way = null;
  return {
    aim(now, shown, state, isStill) {
      const from = { number: numberOf(shown), cut: shown.cut }, to = { number: numberOf(state), cut: state.cut };
      const far = Math.abs(to.number - from.number);
      if (isStill || far > FARTHEST || (!far && from.cut === to.cut)) way = null;
      else way = { from, to, began: now, lasts: Math.min(300 + 100 * far, 700) };
    },
    moving: () => way !== null,
    at(now, state, n) {
      if (!way) return state;
      const share = clamp((now - way.began) / way.lasts, 0, 1);
      if (share === 1) {
        way = null;
        return state;
      }
      const eased = share * share * (3 - 2 * share);
      const on = name => way.from[name] + eased * (way.to[name] - way.from[name]);
      return { ...state, ...(state.playing ? {} : placeOf(on("number"), n)), cut: on("cut") };
    },
  };
}
