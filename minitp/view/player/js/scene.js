// A plain scene: one row a rank, a gate that fills.

function createScene(svg, model, host) {
  const rows = Array.from({ length: model.ranks }, (_, rank) => {
    const group = svgElement("g"), edge = svgElement("rect", { width: 4, height: 40, fill: rankHue(rank) });
    const text = svgElement("text", { x: 16, y: 25, fill: host.theme.text, "font-size": 14 }), bar = svgElement("rect", { x: 200, y: 12, height: 16, fill: rankHue(rank) });
    group.append(edge, text, bar);
    svg.append(group);
    return { group, text, bar };
  });
  return {
    draw(state, width) {
      const sync = model.sync(state.sync);
      rows.forEach(({ group, text, bar }, rank) => {
        const isShown = width >= 900 || rank === state.lane;
        group.setAttribute("display", isShown ? "inline" : "none");
        group.setAttribute("transform", `translate(0 ${(width >= 900 ? rank : 0) * 48})`);
        setText(text, `rank ${rank} ${rank === sync.last ? "(last)" : ""}`);
        bar.setAttribute("width", Math.max(0, (width - 240) * (state.phase + state.t) / 4));
      });
      return (width >= 900 ? model.ranks : 1) * 48;
    },
    describe: state => `${model.ranks} ranks at ${model.sync(state.sync).site}, ${PHASES[state.phase]}`,
  };
}
