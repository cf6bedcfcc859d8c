// One color, one meaning: hue = the rank that owns it, ink = a collective, gray = whole, hatch = waiting.

const HATCH = "scene-hatch";

/** #rgb, #rrggbb or rgb(…) as three numbers; anything else is taken for black. */
function colorParts(color) {
  const hex = /^#([0-9a-f]{6}|[0-9a-f]{3})/i.exec(color || "");
  if (hex) {
    const digits = hex[1].length === 3 ? Array.from(hex[1], (d) => d + d) : hex[1].match(/../g);
    return digits.map((pair) => parseInt(pair, 16));
  }
  const numbers = (color || "").match(/[\d.]+/g) || [];
  return [0, 1, 2].map((i) => Math.min(255, Number(numbers[i] || 0)));
}

/** `share` of the one color over the other, as #rrggbb. */
function blend(over, under, share) {
  const a = colorParts(over), b = colorParts(under);
  return "#" + a.map((x, i) => Math.round(mix(b[i], x, share)).toString(16).padStart(2, "0")).join("");
}

/** How a theme's colors are used. Text is ink or muted ink, never a hue: hues are too weak to read on paper. */
function lookOf(theme) {
  const ink = theme.text || "#1f2430", paper = theme.background || "#ffffff";
  return {
    ink, paper, font: theme.font || "sans-serif",
    border: blend(ink, paper, 0.22),
    muted: blend(ink, paper, 0.72),
    gray: blend(ink, paper, 0.55),
    key: [ink, paper, theme.font].join("|"),
  };
}

/** The outline of a block, by the state of its array. `empty` is what is not there yet. */
function outlineOf(look, state, rank) {
  if (state === "whole") return { stroke: look.gray, width: 1, dash: "none" };
  if (state === "partial") return { stroke: rankHue(rank), width: 2, dash: "5 3" };
  if (state === "empty") return { stroke: look.gray, width: 1, dash: "1 3" };
  return { stroke: rankHue(rank), width: 2, dash: "none" };
}

const fillOf = (look, state, rank) => (state === "whole" ? look.gray : rankHue(rank));

/** Magnitude as opacity. A little above 0 stays visible: a cell that is there is not the same as no cell. */
function opacityOf(value, largest) {
  return 0.07 + (largest > 0 ? 0.93 * Math.min(1, Math.abs(value) / largest) ** 0.8 : 0);
}

function hatchPattern(parent, look) {
  const pattern = svgNode(parent, "pattern", {
    id: HATCH, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)",
  });
  svgNode(pattern, "rect", { width: 1.5, height: 6, fill: look.gray });
}

/** An arrow head of 6 px that points right, or left. */
function arrowHead(x, y, left = false) {
  const back = x + (left ? 6 : -6);
  return `M${back} ${y - 4}L${x} ${y}L${back} ${y + 4}Z`;
}
