// Colors and type, read from the page's --st-* variables whenever the theme changes.

const RANK_HUES = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8C6D31", "#882255"];
const PLAYHEAD = "#DC143C";

function rankHue(rank) {
  return RANK_HUES[rank % RANK_HUES.length];
}

function readTheme(element) {
  const style = getComputedStyle(element);
  const value = (name, otherwise) => style.getPropertyValue(`--st-${name}`).trim() || otherwise;
  return {
    text: value("text-color", "#31333F"), background: value("background-color", "#FFFFFF"),
    secondary: value("secondary-background-color", "#F0F2F6"), border: value("border-color", "#D5D6D8"),
    font: value("font", "sans-serif"), mono: value("code-font", "monospace"),
  };
}

// Black or white, whichever reads better on the color (relative luminance, WCAG 2.2).
function textOn(hex) {
  const [r, g, b] = [1, 3, 5].map(at => {
    const part = parseInt(hex.slice(at, at + 2), 16) / 255;
    return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
  });
  const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
  return 1.05 / (light + 0.05) > (light + 0.05) / 0.05 ? "#FFFFFF" : "#000000";
}
