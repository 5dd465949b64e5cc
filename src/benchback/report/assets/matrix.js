"use strict";
// Tables of ratios: a row per variant, a column per model or per other variant, coloured by how far from 1 they are.
const matrices = (() => {
  const TIES = new Set(["equivalent", "inconclusive"]);
  const FULL = Math.log(4);  // ratios this far from 1 have the full colour

  // As many decimals as the interval deserves, like everywhere else.
  function decimals(row) {
    if (row.low === null || row.high === null) return 2;
    return Math.min(Math.max(-Math.floor(Math.log10(Math.max(row.high - row.low, 1e-9))), 2), 3);
  }
  const ratioText = (row) => row.ratio.toFixed(decimals(row));

  // The share of colour of a ratio; the root lets 1.05 be seen beside 8.
  const share = (ratio) => Math.min(1, Math.sqrt(Math.abs(Math.log(ratio)) / FULL));

  function colour(ratio) {
    const name = ratio > 1 ? "--slow" : "--fast";
    return `color-mix(in srgb, var(${name}) ${Math.round(80 * share(ratio))}%, var(--paper))`;
  }

  const inverted = (row) => ({ ...row, ratio: row.ratio && 1 / row.ratio, low: row.high && 1 / row.high,
    high: row.low && 1 / row.low, verdict: { faster: "slower", slower: "faster" }[row.verdict] || row.verdict });

  // Whether ratios differ by more than their intervals.
  function differ(rows) {
    const known = rows.filter((row) => row.low !== null && row.high !== null);
    return known.length > 1 && Math.max(...known.map((row) => row.low)) > Math.min(...known.map((row) => row.high));
  }

  // What a cell says: of one row; of the row over all; or of the least and the most of several.
  function summary(rows) {
    const single = rows.filter((row) => row.env !== "*" && row.model !== "*");
    const known = single.filter((row) => row.ratio !== null);
    const whole = rows.find((row) => row.env === "*" || row.model === "*");
    if (whole && whole.ratio !== null && !differ(single)) return { one: whole, known, single };
    if (known.length === 1) return { one: known[0], known, single };
    if (!known.length) return { known, single, why: (whole || rows[0] || {}).reason || "not measured" };
    const sorted = [...known].sort((a, b) => a.ratio - b.ratio);
    return { least: sorted[0], most: sorted[sorted.length - 1], known, single };
  }

  const interval = (row) => (row.low === null ? "" : `[${row.low.toFixed(decimals(row))}, ${row.high.toFixed(decimals(row))}]`);
  const told = (row) => `${row.env === "*" ? "all" : row.env}, ${row.model === "*" ? "all" : row.model}: ` +
    (row.ratio === null ? row.reason : `${ratioText(row)} ${interval(row)} ${row.verdict}, ${row.blocks} blocks`);

  function fill(cell, found) {
    const lines = [...(found.one && found.one.env === "*" ? [found.one] : []), ...found.single];
    cell.title = (lines.length ? lines : found.one ? [found.one] : []).map(told).join("\n") || found.why;
    if (found.why) return say(cell, "–", "no verdict");
    const few = found.known.length < found.single.length ? `${found.known.length} of ${found.single.length} cells` : "";
    if (found.one) {
      const { ratio, verdict } = found.one;
      cell.style.setProperty("--tint", colour(ratio));
      if (TIES.has(verdict)) cell.classList.add("tie");
      return say(cell, ratioText(found.one), interval(found.one), few, verdict === "inconclusive" ? "not told apart" : "");
    }
    const { least, most, known } = found;
    const ends = [least, most].map((row) => row.ratio.toFixed(2));
    cell.style.setProperty("--tint", `linear-gradient(to right, ${colour(least.ratio)}, ${colour(most.ratio)})`);
    if (known.every((row) => TIES.has(row.verdict))) cell.classList.add("tie");
    return say(cell, ends[0] === ends[1] ? ends[0] : `${ends[0]} – ${ends[1]}`, few || `${known.length} cells`);
  }

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
    const reference = rows[0].reference;
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
        fill(cell, summary([...here, ...mirrored]));
      }
    }
    return table;
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
