// The player as a Streamlit component. Called again with the same element when data or theme change, so what it made is
// kept by element; nothing is sent to Python but a click on a sync point.

const PLAYERS = new WeakMap();

export default function component({ parentElement, data: [data], setTriggerValue }) {
  const root = parentElement.querySelector(".player"), play = data.play, seek = data.seek || {};
  const signature = `${data.digest} ${JSON.stringify(play.run.window || null)}`;
  let kept = PLAYERS.get(parentElement);
  if (!kept || kept.signature !== signature) {
    if (kept) kept.player.destroy();
    kept = { signature, seen: null, player: createPlayer(root, play, streamlitHost(data, setTriggerValue)) };
    PLAYERS.set(parentElement, kept);
    resume(kept, signature, seek);
  } else {
    kept.player.retheme();
  }
  if (seek.n !== undefined && seek.n !== kept.seen) {
    if (Number.isFinite(seek.sync)) kept.player.act({ type: "seek", t: 1, jump: true, ...seek });
    kept.seen = seek.n;
  }
  return () => {
    remember(kept, signature);
    kept.player.destroy();
    PLAYERS.delete(parentElement);
  };
}

function streamlitHost(data, setTriggerValue) {
  return {
    open: sync => setTriggerValue("detail", { sync }),
    link: keys => {
      const url = new URL(location.href);
      for (const [name, value] of Object.entries({ ...data.link, ...keys })) url.searchParams.set(name, value);
      return url.href;
    },
  };
}

// Leaving the page and coming back takes up where one was, unless Python asks for another place since.
function remember({ player, seen }, signature) {
  try {
    sessionStorage.setItem(`minitp ${signature}`, JSON.stringify({ seen, state: player.state() }));
  } catch {
    return;                                            // no storage: one starts anew
  }
}

function resume(kept, signature, { n }) {
  try {
    const { seen, state } = JSON.parse(sessionStorage.getItem(`minitp ${signature}`)) || {};
    if (!state || (n !== undefined && seen !== n)) return;
    const { sync, phase, t, clock, cut, toggle } = state;
    kept.player.act({ type: "seek", sync, phase, t, clock, cut, toggle, jump: true });
    kept.seen = seen;
  } catch {
    return;
  }
}
