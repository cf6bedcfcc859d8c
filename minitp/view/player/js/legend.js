// One line that says what the marks mean; only shapes that occur in this run.

const LEGEND_BOX = "M2 3H18V13H2Z", LEGEND_BAR = "M1 3H19V13H1Z";

function createLegend(list, model) {
  const ops = new Set();
  let isBroken = false, isCutOff = false;
  for (let k = 0; k < model.n; k++) {
    ops.add(opKind(model.sync(k).op));
    isCutOff ||= model.sync(k).never;
    isBroken ||= Boolean(model.sync(k).broken);
  }
  const marks = [
    ["whole", LEGEND_BOX, "whole"], ["shard", LEGEND_BOX, "shard"], ["partial sum", LEGEND_BOX, "partial"],
    ["not there yet", LEGEND_BOX, "missing"], ["compute", LEGEND_BAR, "compute"],
    ["wait", "M1 13L9 3M7 13L15 3M13 13L19 5.5", "wait"], ["move", LEGEND_BAR, "ink"], ["now", "M10 0V16", "playhead"],
    ...Array.from(ops).filter(kind => BEADS[kind]).map(kind => [kind, BEADS[kind], "ink", "translate(10 8) scale(5)"]),
    ...isBroken ? [["skipped on purpose", CROSS, "cross", "translate(10 8) scale(5)"]] : [],
    ...isCutOff ? [["never ended", BEADS.sum, "never", "translate(10 8) scale(5)"]] : [],
  ];
  list.replaceChildren(...marks.map(([text, d, name, transform]) => {
    const item = element("li"), shape = svgElement("path", { d, class: name, ...(transform ? { transform } : {}) });
    const mark = svgElement("svg", { width: 20, height: 16, viewBox: "0 0 20 16", "aria-hidden": "true" });
    mark.append(shape);
    item.append(mark, text);
    return item;
  }));
}
