// One line that says what the marks mean; only shapes that occur in this run.

function createLegend(list, model) {
  const ops = new Set();
  for (let k = 0; k < model.n; k++) ops.add(opKind(model.sync(k).op));
  const box = "M2 3H18V13H2Z", marks = [
    ["whole", [["path", { d: box, class: "whole" }]]], ["shard", [["path", { d: box, class: "shard" }]]],
    ["partial sum", [["path", { d: box, class: "partial" }]]], ["not there yet", [["path", { d: box, class: "missing" }]]],
    ["compute", [["rect", { x: 1, y: 3, width: 18, height: 10, class: "compute" }]]],
    ["wait", [["path", { d: "M1 13L9 3M7 13L15 3M13 13L19 5.5", class: "wait" }]]],
    ["move", [["rect", { x: 1, y: 3, width: 18, height: 10, class: "ink" }]]],
    ["now", [["path", { d: "M10 0V16", class: "playhead" }]]],
    ...Array.from(ops).filter(kind => BEADS[kind]).map(kind => [kind, [["path", { d: BEADS[kind], class: "ink", transform: "translate(10 8) scale(5)" }]]]),
  ];
  list.replaceChildren(...marks.map(([text, shapes]) => {
    const item = element("li"), mark = svgElement("svg", { width: 20, height: 16, viewBox: "0 0 20 16", "aria-hidden": "true" });
    mark.append(...shapes.map(([name, attributes]) => svgElement(name, attributes)));
    item.append(mark, text);
    return item;
  }));
}
