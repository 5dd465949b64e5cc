"use strict";
// Tables of ratios: a row per variant, a column per model or per other variant, coloured by how far from 1 they are.
const matrices = (() => {
  const TIES = new Set(["equivalent", "inconclusive"]);
  const FULL = Math.log(4);  // ratios this far from 1 have the full colour

  // The share of colour of a ratio; the root lets 1.05 be seen beside 8.
  const share = (ratio) => Math.min(1, Math.sqrt(Math.abs(Math.log(ratio)) / FULL));

  function colour(ratio) {
    const name = ratio > 1 ? "--slow" : "--fast";
    return `color-mix(in srgb, var(${name}) ${Math.round(80 * share(ratio))}%, var(--paper))`;
  }

  const over = (value) => (value === null || value === undefined ? null : 1 / value);
  const inverted = (row) => ({ ...row, ratio: over(row.ratio), low: over(row.high), high: over(row.low),
    lowest: over(row.highest), highest: over(row.lowest),
    least: row.inverse_least, most: row.inverse_most, span: row.inverse_span,
    verdict: { faster: "slower", slower: "faster" }[row.verdict] || row.verdict });

  const isKnown = (row) => row.ratio !== null || row.lowest !== null;
  const ends = (row) => (row.ratio === null ? [row.lowest, row.highest] : [row.ratio, row.ratio]);
  const stars = (row) => (row.env === "*") + (row.model === "*");

  // What a cell of the table says: the row over all that is chosen, where there is one; else the least and the most of
  // several, with the verdict that all share.
  function summary(rows) {
    const most = Math.max(...rows.map(stars));
    const widest = rows.filter((row) => stars(row) === most);
    const single = rows.filter((row) => stars(row) === 0);
    if (widest.length === 1 && isKnown(widest[0])) return { ...widest[0], parts: single.length > 1 ? single : [] };
    const known = widest.filter(isKnown);
    if (!known.length) return { why: (widest[0] || {}).reason || "not measured", parts: single };
    const low = known.reduce((a, b) => (ends(b)[0] < ends(a)[0] ? b : a));
    const high = known.reduce((a, b) => (ends(b)[1] > ends(a)[1] ? b : a));
    const verdicts = new Set(known.map((row) => row.verdict));
    const verdict = verdicts.size === 1 ? known[0].verdict : known.every((row) => TIES.has(row.verdict)) ? "equivalent" : "";
    const left = widest.length - known.length;
    return { ratio: null, lowest: ends(low)[0], highest: ends(high)[1], least: low.least, most: high.most, verdict,
      left_out: left, parts: widest };
  }

  // Numbers as they are printed everywhere: they come with the row, so that no digit is rounded twice.
  const interval = (row) => row.span || "";
  const range = (row) => `${row.least} to ${row.most}`;
  const told = (row) => `${row.env === "*" ? "all" : row.env}, ${row.model === "*" ? "all" : row.model}: ` +
    (isKnown(row) ? `${row.ratio === null ? range(row) : row.least} ${interval(row)} ${row.verdict}` : row.reason);

  function fill(cell, found) {
    cell.title = [...(found.why ? [found.why] : found.env ? [told(found)] : []), ...found.parts.map(told)].join("\n");
    if (found.why) return say(cell, "–", "no verdict");
    if (TIES.has(found.verdict)) cell.classList.add("tie");
    const [low, high] = ends(found);
    cell.style.setProperty("--tint", `linear-gradient(to right, ${colour(low)}, ${colour(high)})`);
    if (found.ratio === null) return say(cell, range(found), ALONG[found.along] || "");
    return say(cell, found.least, interval(found) || "once", TIES.has(found.verdict) ? found.said : "");
  }
  const ALONG = { env: "by environment", model: "by model", cell: "by cell" };

  function say(cell, first, ...rest) {
    const strong = document.createElement("b");
    strong.textContent = first;
    cell.replaceChildren(strong);
    for (const text of rest.filter(Boolean)) {
      const small = document.createElement("small");
      small.textContent = text;
      cell.append(small);
    }
  }

  function head(text, scope, title) {
    const cell = document.createElement("th");
    cell.scope = scope;
    cell.textContent = text;
    if (title) cell.title = title;
    return cell;
  }

  // The rows of one setting and, of a heat table, of one reference.
  function drawn(rows, column, orders, names, caption) {
    const name = (variant) => names[variant] || variant;
    const square = column === "other";
    const reference = square ? null : rows[0].reference;
    const mentioned = new Set(rows.flatMap((row) => [row.variant, square ? row.other : row.reference]));
    const variants = orders.variant.filter((variant) => mentioned.has(variant));
    const columns = square ? variants : orders.model.filter((model) => rows.some((row) => row.model === model));
    const table = document.createElement("table");
    table.className = "ratios";
    table.createCaption().textContent = caption(reference && name(reference));
    const top = table.createTHead().insertRow();
    top.append(head(square ? "row : column" : "", "col"));
    for (const value of columns) top.append(square ? head(name(value), "col", value) : head(value, "col"));
    const body = table.createTBody();
    const left = {};
    for (const variant of variants) {
      const line = body.insertRow();
      line.append(head(name(variant), "row", variant));
      for (const value of columns) {
        const cell = line.insertCell();
        if (square ? variant === value : variant === reference) {
          cell.className = "self";
          if (!square) say(cell, "1", "reference");
          continue;
        }
        const here = rows.filter((row) => row.variant === variant && row[column] === value);
        const mirrored = square ? rows.filter((row) => row.variant === value && row.other === variant).map(inverted) : [];
        const found = summary([...here, ...mirrored]);
        left[value] = Math.max(left[value] || 0, found.left_out || 0);
        fill(cell, found);
      }
    }
    sayLeftOut(table, columns, left, square);
    return table;
  }

  // Cells that lack a variant are in no average of their column; in a matrix of pairs, of the whole.
  function sayLeftOut(table, columns, left, square) {
    const text = (count) => `${count} cell${count === 1 ? "" : "s"} left out`;
    const most = Math.max(0, ...Object.values(left));
    if (square && most) table.caption.textContent += `; ${text(most)}, in which a variant has no result`;
    columns.forEach((value, at) => {
      if (square || !left[value]) return;
      const small = document.createElement("small");
      small.textContent = text(left[value]);
      table.tHead.rows[0].cells[at + 1].append(small);
    });
  }

  // A table for each setting, and for each reference where groups of cells have none in common.
  function draw(box, rows, column, orders, names) {
    const groups = new Map();
    for (const row of rows) {
      const key = JSON.stringify([row.setting, column === "other" ? null : row.reference]);
      groups.set(key, [...(groups.get(key) || []), row]);
    }
    const several = groups.size > 1;
    box.replaceChildren(...[...groups.values()].map((group) => drawn(group, column, orders, names, (reference) =>
      [several || !reference ? group[0].setting : "", reference ? `reference: ${reference}` : ""].filter(Boolean).join("; "))));
  }

  return { draw, summary };
})();
