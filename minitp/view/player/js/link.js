// A state as query keys, and back. They hold in another window of a long run as well: a pass by its number in the run,
// a sync by its place in the pass.

function keysOf(model, state) {
  const pass = model.passes[model.sync(state.sync).pass], first = finite((model.run.window || {}).first, 0);
  return {
    token: first + pass.index, sync: state.sync - pass.first, phase: state.phase, clock: state.clock, cut: state.cut,
    toggle: state.toggle,
  };
}

// What a stranger's address asks for, as an action; null where it asks for nothing that is here.
function actionOfKeys(model, keys) {
  const number = name => /^\d{1,9}$/.test(keys.get(name) || "") ? Number(keys.get(name)) : NaN;
  const first = finite((model.run.window || {}).first, 0), token = number("token"), sync = number("sync");
  if (Number.isNaN(token) && Number.isNaN(sync)) return null;
  const known = model.sync(initialState(model).sync).pass;
  const pass = model.passes[Number.isNaN(token) ? known : clamp(token - first, 0, model.passes.length - 1)];
  const at = pass.first + clamp(finite(sync, 0), 0, Math.max(pass.count - 1, 0));
  return { type: "seek", sync: at, phase: finite(number("phase"), 3), t: 1, clock: keys.get("clock"), cut: number("cut"),
    toggle: keys.get("toggle") };
}

// To the clipboard, or where that is refused, as text to copy by hand.
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return "Link copied.";
  } catch {
    return `Copy this link: ${text}`;
  }
}
