// One element of the result, with its true numbers: whose terms they are, and why their sum can't wait.

/** A line of [{text, rank, bold, muted}…], wrapped to `width`: {height, placed: the same with their nodes}. */
function lineInto(parent, kit, pieces, width) {
  const { look } = kit, step = 30;
  let x = 0, y = 16;
  const placed = pieces.map((piece) => {
    const size = piece.muted ? SMALL : LARGE, w = textWidth(piece.text, size, look.font, Boolean(piece.bold));
    if (x > 0 && x + w > width) [x, y] = [0, y + step];
    const group = groupInto(parent, x, y), text = textInto(group, look, 0, 0, piece.text, { ...piece, size });
    const line = piece.rank === undefined ? null : rectInto(group, 0, 4, w, 3, { rx: 1.5, fill: rankHue(piece.rank) });
    if (line) kit.know(group, { kind: "term", rank: piece.rank, slot: "in" });
    x += w + 6;
    return { ...piece, node: text, line };
  });
  return { height: y + 8, placed };
}

/** The equation strip, or words where there is no sum or its terms aren't known: {height, frame(moment, lit)}. */
function equationInto(parent, kit, spec, state, width, index) {
  const { ranks, sync, model } = kit;
  if (sync.never) return { height: 64, frame: gateSentenceInto(parent, kit, spec, width, 14).frame };
  if (!isSum(spec)) {
    const unknown = model.run.values === "none" ? " This run kept no values: shapes only." : "";
    return sentenceInto(parent, kit, (spec.says ?? `${sync.reason}.`) + unknown, width);
  }
  const values = ranks.map((rank) => termValue(sync, rank, index)), act = sync.slot("act", -1);
  if (values.some((value) => value === null)) return gateWordsInto(parent, kit, spec, width);
  if (state.toggle === "before" && act?.cols >= ranks.length + 2) return beforeInto(parent, kit, spec, act, width);
  return sumInto(parent, kit, spec, values, width, index);
}

/** y[0] = a + b + c = d; what hasn't arrived yet is a question mark. */
function sumInto(parent, kit, spec, values, width, index) {
  const { sync } = kit, { decimals } = spec, sum = sumValue(sync, index), pieces = [];
  const isMax = spec.gate.kind === "max", isOne = isMax || spec.gate.whole || sync.part === "loss";
  pieces.push({ text: isOne ? spec.gate.symbol : `${spec.gate.symbol}[${index}]`, bold: true }, { text: "=" });
  if (isMax) pieces.push({ text: "the largest of" });
  values.forEach((value, rank) => {
    if (rank) pieces.push({ text: sync.broken ? "or" : isMax ? "," : "+" });
    pieces.push({ text: numberWords(value, decimals), rank, bold: true });
  });
  if (!sync.broken && sum !== null) {
    pieces.push({ text: isMax || addsUp(values, sum, decimals) ? "=" : "≈" });
    pieces.push({ text: numberWords(sum, decimals), bold: true, total: true });
  }
  const line = lineInto(parent, kit, pieces, width);
  const sentence = gateSentenceInto(parent, kit, spec, width, line.height + 14);
  return { height: line.height + (width < 420 ? 56 : 40), frame(moment, lit) {
    for (const { rank, text, total, node, line: under } of line.placed) {
      if (under) put(under, "height", rankOf(lit) === rank ? 6 : 3);
      if (under) putText(node, moment.ranks[rank].arrived ? text : "?");
      if (total) putText(node, moment.combine >= 0.6 ? text : "?");
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
function beforeInto(parent, kit, spec, act, width) {
  const { ranks, sync, look } = kit, p = ranks.length, name = activationWord(kit.config.activation);
  const all = Array.from({ length: p + 2 }, (_, i) => act.at(0, i)), decimals = decimalsFor(all);
  const terms = ranks.map((rank) => termValue(sync, rank, 0)), inner = decimalsFor(terms);
  const total = sumValue(sync, 0) ?? terms.reduce((a, b) => a + b, 0), apart = numberWords(all[p], decimals);
  const of = (value) => `${name}(${numberWords(value, inner)})`;
  const early = [{ text: `${name} before the sum:`, muted: true }];
  for (const rank of ranks) early.push(...(rank ? [{ text: "+" }] : []), { text: of(terms[rank]), rank, bold: true });
  early.push({ text: "=" }, { text: apart, bold: true });
  const late = [{ text: `${name} after the sum:`, muted: true }, { text: of(total), bold: true }, { text: "=" },
    { text: numberWords(all[p + 1], decimals), bold: true }, { text: all[p] === all[p + 1] ? "" : `≠ ${apart}` }];
  const above = lineInto(parent, kit, early, width);
  const below = lineInto(groupInto(parent, 0, above.height), kit, late, width);
  const why = `${name} bends, so the ${name} of a sum is not the sum of the ${name}s. What reads ${spec.gate.symbol} `
    + "next bends too: the sum can't wait, and that is why the ranks meet here.";
  const y = above.height + below.height, lines = wrapText(why, width, SMALL, look.font).slice(0, 3);
  linesInto(parent, look, 0, y + 12, lines, 16, { muted: true });
  return { height: y + (width < 420 ? 56 : 36), frame() {} };
}

/** Who waits for whom, where the terms of the sum aren't known. */
function gateWordsInto(parent, kit, spec, width) {
  const kept = kit.sync.slot("in", 0) ? "Cells are block maxima: of no number with several terms the exact ones were kept."
    : "The numbers of this sum were not kept: shapes only.";
  textInto(parent, kit.look, 0, 14, kept, { room: width });
  return { height: 72, frame: gateSentenceInto(parent, kit, spec, width, 34).frame };
}

/** Words instead of an equation. */
function sentenceInto(parent, kit, text, width) {
  const lines = wrapText(text, width, SMALL, kit.look.font).slice(0, 6);
  linesInto(parent, kit.look, 0, 14, lines, 16, { muted: true });
  return { height: 16 * lines.length + 8, frame() {} };
}

/** The sentence about the gate, up to three lines from `y` on: {frame(moment)}. */
function gateSentenceInto(parent, kit, spec, width, y) {
  const nodes = linesInto(parent, kit.look, 0, y, ["", "", ""], 16, { muted: true });
  return { frame(moment) {
    const lines = wrapText(gateSentence(kit, spec, moment), width, SMALL, kit.look.font);
    nodes.forEach((node, i) => putText(node, lines[i] ?? ""));
  } };
}

/** Who waits for whom, and for what. */
function gateSentence(kit, spec, moment) {
  const text = gateSentenceOf(kit, spec, moment);
  return kit.sync.among ? inGroups(text, kit.model.lanes) : text;
}

function gateSentenceOf(kit, spec, moment) {
  const { sync, ranks } = kit, { kind, symbol } = spec.gate;
  if (sync.never && moment.arrived === moment.needed - sync.missing.length) return sync.failed;
  if (sync.broken) {
    return "The sum is skipped on purpose: each rank takes its own partial for the whole, so from here on the ranks "
      + "hold different numbers and the text goes wrong.";
  }
  if (ranks.length === 1 && !(sync.among > 1)) {
    return "One rank holds everything: there is nothing to add and nobody to wait for.";
  }
  const missing = ranks.filter((rank) => moment.ranks[rank].there && !moment.ranks[rank].arrived);
  if (moment.phase <= ARRIVING && missing.length) {
    const all = missing.length === moment.needed, one = missing.length === 1;
    const who = all ? "all are" : one ? `rank ${missing[0]} is`
      : `ranks ${listWords(missing)} are`;
    const on = spec.feeds ? ` to ${spec.feeds}` : "";
    const needed = spec.gate.needs ?? "the complete sum";
    return `Nobody can go on${on}: every rank needs ${needed}, and ${who} still computing.`;
  }
  if (moment.phase <= COMBINE) return `All are here. The payload is ${size(sync.payload)}: the whole array, once.`;
  const held = kind === "cut" ? "its own part of the sum" : `the same whole ${symbol}`;
  const feeds = spec.feeds ? `; it feeds: ${spec.feeds}` : "";
  const maxima = sync.slot("in", 0)?.kind === "u8" && sync.slot("sum", -1)
    ? ` Cells are block maxima; ${symbol}[0] is exact.` : "";
  return `Now every rank holds ${held}${feeds}.${maxima}`;
}
