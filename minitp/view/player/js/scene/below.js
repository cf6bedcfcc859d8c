// What stands below the lanes: the equation and the inset; while whole matrices are shown, how they are cut.

/** Side by side where there is room: {bottom, areas, frame(moment, lit)}. area: x, y, w, full (the whole width). */
function belowInto(svg, kit, spec, o, area) {
  const strip = groupInto(svg), insets = groupInto(svg), cutting = groupInto(svg, area.x, area.y), { look } = kit;
  const inset = spec.inset.length ? insetInto(insets, kit, spec.inset, area.full) : { w: 0, h: 0, frame() {} };
  const beside = inset.w > 0 && area.w - inset.w >= 440, left = beside ? inset.w + 8 : 0;
  const equation = equationInto(strip, kit, spec, o.state, area.w - left, o.index);
  const high = Math.max(equation.height, area.least), insetY = beside ? area.y : area.y + high + 16;
  moveTo(strip, area.x + left, area.y);
  moveTo(insets, area.x, insetY);
  linesInto(cutting, look, 0, 14, wrapText(cutWords(kit, spec), area.full, SMALL, look.font).slice(0, 6), 16);
  const stripArea = { x: area.x + left - 8, y: area.y - 6, w: area.w - left + 8, h: equation.height + 4 };
  return {
    bottom: Math.max(area.y + high, inset.h ? insetY + inset.h : 0),
    areas: [{ focus: "equation", ...stripArea }, { focus: "toggle", ...stripArea },
      { focus: "inset", x: area.x - 8, y: insetY - 6, w: inset.w - 4, h: inset.h + 12 }],
    frame(moment, lit) {
      for (const node of [strip, insets]) put(node, "opacity", between(moment.cut, 0.5, 1));
      put(cutting, "opacity", 1 - between(moment.cut, 0.2, 0.5));
      equation.frame(moment, lit);
      inset.frame(rankOf(lit) < 0 ? null : lit);
    },
  };
}

/** How the matrices of a scene are cut, in words. */
function cutWords(kit, spec) {
  const by = (...words) => spec.inset.filter((whole) => words.includes(whole.word)).map((whole) => whole.label);
  const columns = by("columns", "heads", "pieces"), rows = by("rows"), found = [];
  if (columns.length) found.push(`${listWords(columns)}: cut by columns, so the ranks' results lie side by side.`);
  if (rows.length) found.push(`${listWords(rows)}: cut by rows, so the ranks' results are partial sums, to be added.`);
  if (by("answers").length) found.push("The table is cut by rows: one rank has a token's row, the others add zeros.");
  if (!found.length || kit.alone) return "";
  return `Before the cut; each color is the rank that will own the part. ${found.join(" ")}`;
}

const listWords = (list) => (list.length < 2 ? list.join("") : `${list.slice(0, -1).join(", ")} and ${list.at(-1)}`);
