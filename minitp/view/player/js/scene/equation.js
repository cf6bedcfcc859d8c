// One element of the result, with its true numbers: whose terms they are, and why their sum can't wait.

/** Pieces of a line: [{text, rank?, bold?, muted?}], laid out and wrapped to `width`; returns the height. */
function lineInto(parent, kit, pieces, width) {
  const { look } = kit, line = 30;
  let x = 0, y = 16;
  const placed = [];
  for (const piece of pieces) {
    const size = piece.muted ? SMALL : LARGE, bold = Boolean(piece.bold);
    const w = textWidth(piece.text, size, look.font, bold);
    if (x > 0 && x + w > width) {
      x = 0;
      y += line;
    }
    const group = svgNode(parent, "g", {});
    moveTo(group, x, y);
    const text = svgNode(group, "text", { x: 0, y: 0, "font-size": size, fill: piece.muted ? look.muted : look.ink,
      ...(bold ? { "font-weight": 600 } : {}) }, piece.text);
    if (piece.rank !== undefined) {
      piece.line = svgNode(group, "rect", { x: 0, y: 4, width: w, height: 3, rx: 1.5, fill: rankHue(piece.rank) });
      kit.know(group, { kind: "term", rank: piece.rank, slot: "in" }, { plain: true });
    }
    placed.push({ ...piece, textNode: text });
    x += w + (piece.gap ?? 6);
  }
  return { height: y + 8, placed };
}

/** The equation strip, or words where there is no sum or its terms aren't known: {height, frame(moment, lit)}. */
function equationInto(parent, kit, spec, state, width, index) {
  const { ranks, sync } = kit, kind = spec.gate?.kind, values = ranks.map((rank) => termValue(sync, rank, index));
  if (kind !== "sum" && kind !== "cut") {
    const unknown = kit.model.run.values === "none" ? " This run kept no values: shapes only." : "";
    return sentenceInto(parent, kit, (spec.says ?? `${sync.reason}.`) + unknown, width);
  }
  if (values.some((value) => value === null)) return gateWordsInto(parent, kit, spec, width);
  const act = sync.slot("act", -1);
  if (state.toggle === "before" && act && act.cols >= ranks.length + 2) return beforeInto(parent, kit,
    spec.gate.symbol, act, width);
  return sumInto(parent, kit, spec, values, sumValue(sync, index), width, index);
}

function sumInto(parent, kit, spec, values, sum, width, index) {
  const { ranks, sync } = kit, { symbol } = spec.gate, broken = Boolean(sync.broken), decimals = spec.decimals,
    pieces = [];
  pieces.push({ text: `${symbol}[${index}]`, bold: true }, { text: "=" });
  ranks.forEach((rank, i) => {
    if (i) pieces.push({ text: broken ? "or" : "+" });
    pieces.push({ text: numberWords(values[rank], decimals), rank, term: rank, bold: true });
  });
  if (!broken && sum !== null) {
    pieces.push({ text: addsUp(values, sum, decimals) ? "=" : "≈" }, { text: numberWords(sum, decimals), bold: true,
      total: true });
  }
  const line = lineInto(parent, kit, pieces, width);
  const sentence = sentenceFrame(parent, kit, spec, width, line.height + 14);
  return { height: line.height + (width < 420 ? 56 : 40), frame(moment, lit) {
    for (const piece of line.placed) {
      if (piece.term !== undefined) {
        put(piece.line, "height", rankOf(lit) === piece.term ? 6 : 3);
        putText(piece.textNode, moment.ranks[piece.term].arrived ? piece.text : "?");
      } else if (piece.total) putText(piece.textNode, moment.combine >= 0.6 ? piece.text : "?");
    }
    sentence.frame(moment);
  } };
}

/** Whether the rounded terms add up to the rounded sum. */
function addsUp(values, sum, decimals) {
  const rounded = (v) => Number(v.toFixed(decimals));
  return Math.abs(values.reduce((a, v) => a + rounded(v), 0) - rounded(sum)) < 0.5 * 10 ** -decimals;
}

/** Decimals for an equation: three digits of the largest number, one more where only then the terms add up. */
function equationDecimals(values, sum) {
  const least = decimalsFor([...values, sum ?? 0]);
  return [least, least + 1].find((decimals) => sum !== null && addsUp(values, sum, decimals)) ?? least;
}

/** act(a) + act(b) ≠ act(a + b), with the numbers of this sync: one line each way. */
function beforeInto(parent, kit, symbol, act, width) {
  const { ranks, sync, config } = kit, p = ranks.length, name = activationWord(config.activation);
  const list = Array.from({ length: p + 2 }, (_, i) => act.at(0, i)), decimals = decimalsFor(list);
  const terms = ranks.map((rank) => termValue(sync, rank, 0)), inner = decimalsFor(terms);
  const early = [{ text: `${name} before the sum:`, muted: true }], late = [{ text: `${name} after the sum:`,
    muted: true }];
  ranks.forEach((rank, i) => {
    if (i) early.push({ text: "+" });
    early.push({ text: `${name}(${numberWords(terms[rank], inner)})`, rank, bold: true });
  });
  early.push({ text: "=" }, { text: numberWords(list[p], decimals), bold: true });
  late.push({ text: `${name}(${numberWords(sumValue(sync, 0) ?? terms.reduce((a, b) => a + b, 0), inner)})`,
    bold: true }, { text: "=" },
    { text: numberWords(list[p + 1], decimals), bold: true }, { text: list[p] === list[p + 1] ? ""
      : `≠ ${numberWords(list[p], decimals)}` });
  const above = lineInto(parent, kit, early, width), second = svgNode(parent, "g", {});
  moveTo(second, 0, above.height);
  const below = lineInto(second, kit, late, width), y = above.height + below.height;
  const why = `${name} bends, so the ${name} of a sum is not the sum of the ${name}s. What reads ${symbol} next bends too: `
    + "the sum can't wait, and that is why the ranks meet here.";
  wrapText(why, width, SMALL, kit.look.font).slice(0, 3).forEach((text, i) => svgNode(parent, "text",
    { x: 0, y: y + 12 + 16 * i, "font-size": SMALL, fill: kit.look.muted }, text));
  return { height: y + (width < 420 ? 56 : 36), frame() {} };
}

/** Who waits for whom, where the terms of the sum aren't known. */
function gateWordsInto(parent, kit, spec, width) {
  const words = svgNode(parent, "text", { x: 0, y: 14, "font-size": SMALL, fill: kit.look.ink }, fitText(
    "The numbers of this sum were not kept: shapes only.", width, SMALL, kit.look.font));
  const sentence = sentenceFrame(parent, kit, spec, width, 34);
  return { height: 72, frame(moment) {
    put(words, "opacity", 1);
    sentence.frame(moment);
  } };
}

/** The sentence about the gate, up to three lines from `y` on. */
function sentenceFrame(parent, kit, spec, width, y) {
  const texts = [0, 1, 2].map((i) => svgNode(parent, "text", { x: 0, y: y + 16 * i, "font-size": SMALL,
    fill: kit.look.muted }, ""));
  return { frame(moment) {
    const lines = wrapText(gateSentence(kit, spec, moment), width, SMALL, kit.look.font).slice(0, texts.length);
    texts.forEach((text, i) => putText(text, lines[i] ?? ""));
  } };
}

/** Words instead of an equation: the scene's own, or the reason that the trace gives. */
function sentenceInto(parent, kit, text, width) {
  const lines = wrapText(text, width, SMALL, kit.look.font).slice(0, 6);
  lines.forEach((line, i) => svgNode(parent, "text", { x: 0, y: 14 + 16 * i, "font-size": SMALL,
    fill: kit.look.muted }, line));
  return { height: 16 * lines.length + 8, frame() {} };
}

/** Who waits for whom, and for what. */
function gateSentence(kit, spec, moment) {
  const { sync, ranks } = kit;
  if (sync.broken) {
    return "The sum is skipped on purpose: each rank takes its own partial for the whole, so from here on the ranks "
      + "hold different numbers and the text goes wrong.";
  }
  if (ranks.length === 1) return "One rank holds everything: there is nothing to add and nobody to wait for.";
  const missing = ranks.filter((rank) => moment.ranks[rank].there && !moment.ranks[rank].arrived);
  if (moment.phase <= ARRIVING && missing.length) {
    const who = missing.length === moment.needed ? "all are still computing" : missing.length === 1
      ? `rank ${missing[0]} is still computing`
      : `ranks ${listWords(missing.map(String))} are still computing`;
    return `Nobody can go on${spec.feeds ? ` to ${spec.feeds}` : ""}: every rank needs the complete sum, and ${who}.`;
  }
  if (moment.phase <= COMBINE) return `All are here. The payload is ${size(sync.payload)}: the whole array, once.`;
  const maxima = sync.slot("in", 0)?.kind === "u8"
    ? ` Cells show the largest magnitude of a block; ${spec.gate.symbol}[0] is exact.` : "";
  const held = spec.gate.kind === "cut" ? `its own part of the sum` : `the same whole ${spec.gate.symbol}`;
  return `Now every rank holds ${held}${spec.feeds ? `; it feeds: ${spec.feeds}` : ""}.${maxima}`;
}
