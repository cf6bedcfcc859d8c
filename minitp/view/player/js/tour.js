// The guided tour: cards over the same view. Each sets the state that it names; in between everything stays free.

function createTour(parts, model, act) {
  const chosen = new Map();                            // what was predicted, by card
  parts["tour-choices"].addEventListener("click", event => {
    const choice = event.target.closest("[data-choice]");
    if (!choice) return;
    chosen.set(act.state().card, Number(choice.dataset.choice));
    const { sync, card } = act.state(), asked = model.tour[card];
    if (asked?.t === 0 && asked.sync === sync) act({ type: "seek", phase: asked.phase + 1, t: 1 });  // shows the answer
    act.draw();
  }, { signal: act.signal });

  let key = "";
  return function draw({ state }) {
    const card = state.card === null ? null : model.tour[state.card];
    setHidden(parts.tour, !card);
    if (!card || key === (key = `${state.card} ${chosen.get(state.card)}`)) return;
    setText(parts["tour-count"], `Tour, card ${state.card + 1} of ${model.tour.length}`);
    for (const name of ["title", "text", "question"]) {
      setText(parts[`tour-${name}`], card[name] || "");
      setHidden(parts[`tour-${name}`], !card[name]);
    }
    drawChoices(parts, card, chosen.get(state.card));
  };
}

function drawChoices(parts, card, choice) {
  const isAsked = Boolean(card.question), isAnswered = choice !== undefined;
  parts["tour-choices"].replaceChildren(...(isAsked ? card.choices || [] : []).map((text, index) => {
    const mark = !isAnswered ? "" : index === card.answer ? " right" : index === choice ? " other" : "";
    const sign = mark === " right" ? "✓ " : mark === " other" ? "✗ " : "";
    const pressed = index === choice, attributes = { type: "button", class: `choice${mark}`, "data-choice": index };
    return element("button", { ...attributes, "aria-pressed": pressed }, sign + text);
  }));
  const verdict = choice === card.answer ? "Yes. " : "Not this time. ";
  setText(parts["tour-reveal"], isAsked && isAnswered ? verdict + (card.reveal || "") : "");
  setHidden(parts["tour-reveal"], !isAsked || !isAnswered);
}
