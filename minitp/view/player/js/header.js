// Where we are, which sync point, what time; and the caption: a sentence made of the run's numbers.

function createHeader(parts, model) {
  let key = "";
  return function draw({ state, shown }) {
    const sync = model.sync(state.sync), pass = model.passes[sync.pass];
    setText(parts.when, `t = ${duration(Math.round(timeOf(model, shown)))} of ${duration(passNs(model, sync.pass))}`);
    if (key === (key = `${state.sync} ${state.phase} ${state.playing}`)) return;
    const number = state.sync - pass.first + 1;
    setText(parts.where, placeName(model, sync, pass));
    setText(parts.which, `sync point ${number} of ${pass.count} · ${opName(sync.op)} (${opKind(sync.op)})`);
    setAttribute(parts.caption, "aria-live", state.playing ? "off" : "polite");
    setText(parts.caption, captionOf(model, sync, state.phase));
  };
}

function placeName(model, sync, pass) {
  const isSent = (sync.op === "send" || sync.op === "receive") && sync.group;
  if (isSent) return `${upper(sync.group)} · ${passName(model, pass)}`;
  const layer = sync.layer >= 0 ? `Layer ${sync.layer} · ` : "";
  const part = `${partName(sync.part)}${isAgain(model, sync) ? ", forward again (recomputed)" : ""}`;
  return `${layer}${layer ? part : part[0].toUpperCase() + part.slice(1)} · ${passName(model, pass)}`;
}

function passName(model, pass) {
  if (pass.phase === "load") return `before the first ${model.trains ? "step" : "token"}`;
  if (pass.phase !== "prefill" && pass.phase !== "decode") return passPlace(pass);
  const word = pass.text ? ` “${shortened(visible(pass.text).trim(), 24)}”` : "";
  return pass.phase === "prefill" ? `prompt → first token${word}` : `token ${pass.step + 1}${word}`;
}

// A pass of training by its step and micro-batch, counted from 1: step 2, backward of micro-batch 1 ←.
function passPlace({ phase, step, micro }) {
  if (phase === "evaluate" && step >= 0) {
    return `evaluation after step ${step}${micro >= 0 ? `, batch ${micro + 1}` : ""}`;
  }
  const name = `${plain(phase, 20) || "run"}${micro >= 0 ? ` of micro-batch ${micro + 1}` : ""}`;
  return `${step >= 0 ? `step ${step + 1}, ` : ""}${name}${phase === "backward" ? " ←" : ""}`;
}
