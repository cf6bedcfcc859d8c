// "Save picture": the scene and its caption as one SVG that needs no style sheet, or the same as PNG.

const STYLED = [
  "fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin",
  "stroke-opacity", "opacity", "font-family", "font-size", "font-weight", "font-style", "text-anchor",
  "dominant-baseline", "visibility", "display",
];

function pictureOf(svg, title, caption, theme) {
  const { width, height } = svg.getBoundingClientRect(), copy = svg.cloneNode(true);
  inlineStyles(svg, copy);
  const lines = wrapped(caption, Math.max(Math.floor((width - 32) / 7), 20));
  const all = Math.ceil(height + 72 + 20 * lines.length), wide = Math.ceil(width + 32);
  const picture = svgElement("svg", { xmlns: SVG, width: wide, height: all, viewBox: `0 0 ${wide} ${all}` });
  const text = (y, size, weight, words) => svgElement("text", {
    x: 16, y, fill: theme.text, "font-family": theme.font, "font-size": size, "font-weight": weight,
  }, words);
  for (const [name, value] of Object.entries({ x: 16, y: 48, width, height })) copy.setAttribute(name, value);
  const paper = svgElement("rect", { width: wide, height: all, fill: theme.background });
  picture.append(paper, text(30, 16, 700, title), copy);
  lines.forEach((line, index) => picture.append(text(height + 68 + 20 * index, 13, 400, line)));
  return { text: new XMLSerializer().serializeToString(picture), width: wide, height: all };
}

function inlineStyles(from, to) {
  const style = getComputedStyle(from);
  for (const name of STYLED) {
    const value = style.getPropertyValue(name);
    if (value) to.style.setProperty(name, value);
  }
  Array.from(from.children).forEach((child, index) => inlineStyles(child, to.children[index]));
}

function wrapped(text, longest) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const line = lines[lines.length - 1];
    if (line && line.length + word.length >= longest) lines.push(word);
    else lines[lines.length - 1] = line ? `${line} ${word}` : word;
  }
  return lines;
}

async function savePicture(kind, picture, name) {
  const svg = new Blob([picture.text], { type: "image/svg+xml" });
  download(kind === "svg" ? svg : await asPng(svg, picture), `${name}.${kind}`);
}

async function asPng(svg, { width, height }) {
  const url = URL.createObjectURL(svg), image = new Image(), canvas = document.createElement("canvas");
  try {
    image.src = url;
    await image.decode();
    [canvas.width, canvas.height] = [2 * width, 2 * height];
    canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
    return await new Promise(done => canvas.toBlob(done, "image/png"));
  } finally {
    URL.revokeObjectURL(url);
  }
}

function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
