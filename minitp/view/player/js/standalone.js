// The player in a file of its own: no server. The address's #fragment says where to start, else the root's data-at.

// root holds the player's markup; play is the parsed JSON.
function startStandalone(root, play) {
  const element = root.querySelector(".player");
  const link = keys => {
    const url = new URL(location.href);
    url.hash = new URLSearchParams(keys).toString();
    return url.href;
  };
  const player = createPlayer(element, play, { open() {}, link });
  const follow = () => {
    const action = player.model && actionOfKeys(player.model, new URLSearchParams(location.hash.slice(1) || root.dataset.at));
    if (action) player.act({ ...action, jump: true });
  };
  follow();
  addEventListener("hashchange", follow);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => player.retheme());
  return player;
}
