// Weights as pictures: thousands of cells as one image each, so that a frame moves a node and not thousands.

const heatPictures = new Map();         // the latest ones, by what they show
const HEAT_KEPT = 400;

/** How many canvas px a cell takes: enough for its gap and the dash of a negative one, less where cells are many. */
const heatZoom = (rows, cols) => (rows * cols <= 256 ? 6 : rows * cols <= 4096 ? 4 : rows * cols <= 16384 ? 2 : 1);

/** Red, green, blue as the low bytes of a pixel. */
const packedColor = (color) => colorParts(color).reduce((all, part, i) => all | (Math.round(part) << (8 * i)), 0);

/**
 * A data URL of `array` (rows, cols, at): opacity of `hue` for the magnitude, a dash in the cell for a negative number.
 * `key` names the array; the picture is made once. Without `dashes` where cells are too small for them.
 */
function heatPicture(key, array, hue, largest, paper, dashes = true) {
  const name = `${key}|${hue}|${paper}|${largest}|${dashes}`;
  const kept = heatPictures.get(name);
  if (kept) return kept;
  const { rows, cols } = array, zoom = heatZoom(rows, cols), gap = zoom > 1 ? 1 : 0, width = Math.max(1, cols * zoom);
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = Math.max(1, rows * zoom);
  const pen = canvas.getContext("2d", { willReadFrequently: true });           // it is read once: keep it off the GPU
  const image = pen.createImageData(canvas.width, canvas.height), pixels = new Uint32Array(image.data.buffer);
  const ink = packedColor(hue), ground = packedColor(paper);
  const box = (x, y, w, h, color) => {
    for (let i = y; i < y + h; i++) pixels.fill(color, i * width + x, i * width + x + w);
  };
  for (let i = 0; i < rows; i++) {
    for (let j = 0; j < cols; j++) {
      const value = array.at(i, j), opacity = opacityOf(value, largest);
      box(j * zoom, i * zoom, zoom - gap, zoom - gap, (ink | (Math.round(255 * opacity) << 24)) >>> 0);
      if (dashes && value < 0 && zoom >= 6) box(j * zoom + 1, i * zoom + 2, 3, 1,
        ((opacity > 0.45 ? ground : ink) | 0xff000000) >>> 0);
    }
  }
  pen.putImageData(image, 0, 0);
  const url = canvas.toDataURL();
  if (heatPictures.size >= HEAT_KEPT) heatPictures.delete(heatPictures.keys().next().value);
  heatPictures.set(name, url);
  return url;
}

/** An array the other way round: stored (out, in) is drawn as Wᵀ, (in, out), where a column cut looks like columns. */
const transposed = (array) => ({ ...array, rows: array.cols, cols: array.rows,
  at: array.at && ((i, j) => array.at(j, i)) });

/** Rows `from` to `to` of an array. */
const rowsOf = (array, from, to) => ({ ...array, rows: to - from, at: array.at && ((i, j) => array.at(i + from, j)) });
