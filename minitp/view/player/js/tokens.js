// The strip of passes: loading, the words of the prompt, then every new token; in training the passes of every step. A
// click goes to the pass.

const LONGEST_WORD = 24;

function createTokens(strip, model, act) {
  const chips = [];
  const chip = (pass, text, kind, title = text) => {
    const shown = kind === "new" ? visible(text).trim() : visible(text);
    const made = element("button", { type: "button", class: `chip ${kind}`, tabindex: -1, "data-pass": pass.index });
    made.title = visible(title);
    made.append(element("span", {}, shortened(shown, LONGEST_WORD) || "∅"));
    strip.append(made);
    return made;
  };
  strip.replaceChildren();
  let step = -1;
  for (const pass of model.passes) {
    const made = { pass, reads: [], writes: null };
    const isTraining = TRAINING.has(pass.phase);
    if (isTraining && pass.step !== step) {
      step = pass.step;
      strip.append(element("span", { class: "step" }, stepWords(model, pass)));
    }
    if (pass.phase === "load") made.writes = chip(pass, "load", "load", "Loading: each rank gets its slice");
    if (pass.phase === "prefill") made.reads = model.prompt.map(word => chip(pass, word, "prompt"));
    if (isTraining) made.writes = chip(pass, passChip(pass), "new", passPlace(pass));
    else if (pass.phase === "evaluate") made.writes = chip(pass, "evaluation", "new", passPlace(pass));
    else if (pass.phase !== "load") made.writes = chip(pass, pass.text || partName(pass.phase), "new");
    chips.push(made);
  }
  strip.addEventListener("click", event => {
    const target = event.target.closest("[data-pass]");
    if (target) act({ type: "seek", sync: model.passes[Number(target.dataset.pass)].first, phase: 3 });
  }, { signal: act.signal });

  let current = -1;
  return function draw({ state }) {
    const now = model.sync(state.sync).pass;
    if (now === current) return;
    current = now;
    chips.forEach(({ pass, reads, writes }, index) => {
      for (const word of reads) word.classList.toggle("read", index === now);
      writes.classList.toggle("read", index === now - 1 && pass.phase !== "load" && !model.trains);
      writes.classList.toggle("current", index === now);
      writes.classList.toggle("coming", index > now);
      setAttribute(writes, "tabindex", index === now ? 0 : -1);
      setAttribute(writes, "aria-current", index === now ? "step" : "false");
    });
    scrollInto(strip, chips[now].writes);
  };
}

// Scrolls the strip alone: scrollIntoView would move the page as well.
function scrollInto(strip, node) {
  const top = node.offsetTop - strip.offsetTop, bottom = top + node.offsetHeight;
  if (top < strip.scrollTop || bottom > strip.scrollTop + strip.clientHeight) strip.scrollTop = top - 8;
}

// A step, its mean loss, and the word that is shown of its text with the one that it should predict, where known.
function stepWords(model, { step, loss }) {
  const { learns } = model.passes.find(pass => pass.step === step && pass.learns) ?? {};
  const known = [`step ${step + 1}`, loss === null ? "" : `loss ${loss.toFixed(3)}`, learns ? `shown: ${learns}` : ""];
  return known.filter(Boolean).join(" · ");
}

// forward, backward ←, optimizer; numbered where a step has several micro-batches.
function passChip({ phase, micro }) {
  return `${partName(phase)}${micro >= 0 ? ` ${micro + 1}` : ""}${phase === "backward" ? " ←" : ""}`;
}
