"use strict";
// Filters shared by all charts and kept in the address; a table beside every chart; light and dark.
(() => {
  const DATA = JSON.parse(document.getElementById("data").textContent);
  const MOST_ROWS = 400;
  const NARROW = 560;
  const ERRORS = 1;  // of the levels of vega's log
  const FILTERS = Object.keys(DATA.filters);
  const chosen = {};
  const views = new Map();

  // A table that came column by column, as rows.
  function rowsOf(table) {
    const names = Object.keys(table);
    const columns = names.map((name) => {
      const column = table[name];
      return column.levels ? column.at.map((at) => column.levels[at]) : column;
    });
    const count = columns.length ? columns[0].length : 0;
    return Array.from({ length: count }, (_, at) => Object.fromEntries(names.map((name, i) => [name, columns[i][at]])));
  }
  const TABLES = Object.fromEntries(Object.entries(DATA.tables).map(([name, table]) => [name, rowsOf(table)]));

  const isActive = (name) => chosen[name].size < DATA.filters[name].length;

  // "*" stands for all environments or all models: it is shown unless some are chosen.
  function passes(row, name, hasTotals) {
    const value = row[name];
    if (value === undefined || value === null) return true;
    if (hasTotals) return isActive(name) ? value !== "*" && chosen[name].has(value) : value === "*";
    return chosen[name].has(value);
  }

  function selected(figure) {
    let rows = TABLES[figure.data].filter((row) =>
      Object.entries(figure.where).every(([name, value]) => row[name] === value));
    for (const name of FILTERS) {
      const hasTotals = rows.some((row) => row[name] === "*");
      rows = rows.filter((row) => passes(row, name, hasTotals));
    }
    rows = rows.filter((row) => row.backend2 === undefined || chosen.backend.has(row.backend2));
    for (const name of figure.one) {
      if (!isActive(name) && rows.length) rows = rows.filter((row) => row[name] === rows[0][name]);
    }
    if (!isActive("mode")) rows = preferred(rows, "main");
    return isActive("env") || isActive("model") ? rows : preferred(rows, "example");
  }

  // Those that are marked, if any are: variants of many cells, examples of lines that would cover each other.
  function preferred(rows, mark) {
    const some = rows.filter((row) => row[mark]);
    return some.length ? some : rows;
  }

  function shown(value) {
    if (value === null || value === undefined) return "";
    if (typeof value !== "number") return String(value);
    return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
  }

  function fill(box, figure, rows) {
    const table = document.createElement("table");
    const caption = table.createCaption();
    const more = rows.length > MOST_ROWS ? `; the first ${MOST_ROWS} are here, all are in the download` : "";
    caption.textContent = `${rows.length} row${rows.length === 1 ? "" : "s"}${more}`;
    const head = table.createTHead().insertRow();
    for (const [, heading] of figure.columns) {
      const cell = document.createElement("th");
      cell.scope = "col";
      cell.textContent = heading;
      head.append(cell);
    }
    const body = table.createTBody();
    for (const row of rows.slice(0, MOST_ROWS)) {
      const line = body.insertRow();
      for (const [name] of figure.columns) {
        const cell = line.insertCell();
        cell.textContent = shown(row[name]);
        if (typeof row[name] === "number") cell.className = "number";
      }
    }
    box.replaceChildren(table);
  }

  function updateTable(figure, rows) {
    const twin = document.querySelector(`#${figure.id} .twin`);
    if (twin.open) fill(twin.querySelector(".scroll"), figure, rows);
  }

  // As wide as the page: single charts by themselves, panels in as many columns as fit. Where there is no room for
  // names beside rows, they go above them.
  function fitted(spec, box, rows) {
    const width = Math.max(box.clientWidth, 280);
    const narrow = width < NARROW;
    const made = structuredClone(spec);
    made.params.find((given) => given.name === "narrow").value = narrow;
    const inner = made.facet ? made.spec : made;
    if (narrow && inner.height && inner.height.step) inner.height.step += made.usermeta && made.usermeta.words ? 34 : 22;
    if (made.facet) {
      const panels = new Set(rows.map((row) => row[made.facet.field])).size;
      made.columns = made.columns > 1 && width > 640 && panels > 1 ? 2 : 1;
      const room = narrow ? 60 : made.usermeta.room;
      made.spacing = { column: room, row: 75 };
      made.facet.header.labelLimit = Math.floor(width / made.columns) - 20;
      made.spec.width = Math.floor(width / made.columns) - room - 12;
    } else {
      made.width = width;
      made.autosize = { type: "fit-x", contains: "padding" };
    }
    return made;
  }

  const isDark = () => document.documentElement.dataset.theme === "dark";
  const copies = (rows) => rows.map((row) => ({ ...row }));

  async function draw(figure) {
    const rows = selected(figure);
    const holder = document.getElementById(figure.id);
    holder.querySelector(".missing").hidden = rows.length > 0;
    updateTable(figure, rows);
    if (!figure.spec) return;
    const box = holder.querySelector(".chart");
    box.hidden = rows.length === 0;
    if (!rows.length) return;
    // Panels get their width when they are made.
    if (figure.spec.facet && views.has(figure.id)) forget(figure.id);
    if (!views.has(figure.id)) {
      const spec = fitted(figure.spec, box, rows);
      spec.datasets = { [figure.data]: copies(rows) };
      const config = structuredClone(DATA.config[isDark() ? "dark" : "light"]);
      if (box.clientWidth < NARROW) config.legend.columns = 3;
      const options = { actions: false, renderer: "svg", logLevel: ERRORS, config };
      options.tooltip = { theme: isDark() ? "dark" : "light" };
      const made = await vegaEmbed(box, spec, options);
      views.set(figure.id, made);
      // vega-embed gives the box a role that screen readers do not know; the table beside it is the text.
      box.setAttribute("role", "img");
      box.setAttribute("aria-label", holder.querySelector("h3").textContent);
      box.removeAttribute("aria-roledescription");
      box.querySelector("svg").setAttribute("aria-hidden", "true");
    } else {
      await views.get(figure.id).view.data(figure.data, copies(rows)).runAsync();
    }
  }

  function forget(id) {
    views.get(id).finalize();
    views.delete(id);
  }

  // One after another; a newer request takes over from one that is under way.
  let turn = 0;
  async function drawAll() {
    const mine = ++turn;
    document.documentElement.dataset.state = "drawing";
    const runs = (TABLES.runs || []).filter((row) => FILTERS.every((name) => passes(row, name, false)));
    document.getElementById("status").textContent = `${runs.length} of ${(TABLES.runs || []).length} runs chosen`;
    for (const figure of DATA.figures) {
      if (mine !== turn) return;
      await draw(figure);
    }
    document.documentElement.dataset.state = "ready";
  }

  function redraw() {
    for (const id of [...views.keys()]) forget(id);
    return drawAll();
  }

  function readAddress() {
    const given = new URLSearchParams(location.search);
    for (const name of FILTERS) {
      const wanted = given.getAll(name).filter((value) => DATA.filters[name].includes(value));
      chosen[name] = new Set(wanted.length ? wanted : DATA.filters[name]);
    }
  }

  function writeAddress() {
    const made = new URLSearchParams();
    for (const name of FILTERS) if (isActive(name)) for (const value of chosen[name]) made.append(name, value);
    const text = made.toString();
    history.replaceState(null, "", (text ? `?${text}` : location.pathname) + location.hash);
  }

  function showChoices() {
    for (const name of FILTERS) {
      const box = document.querySelector(`[data-filter="${name}"]`);
      if (!box) continue;
      for (const input of box.querySelectorAll("input")) input.checked = chosen[name].has(input.value);
      box.classList.toggle("active", isActive(name));
      box.querySelector("summary span").textContent = isActive(name) ? [...chosen[name]].join(", ") || "none" : "all";
    }
  }

  function choose(event) {
    const { name, value, checked } = event.target;
    if (!(name in chosen)) return;
    if (checked) chosen[name].add(value);
    else chosen[name].delete(value);
    chosen[name] = new Set(DATA.filters[name].filter((x) => chosen[name].has(x)));
    writeAddress();
    showChoices();
    drawAll();
  }

  function setTheme(name) {
    document.documentElement.dataset.theme = name;
    const button = document.getElementById("theme");
    button.setAttribute("aria-pressed", String(name === "dark"));
  }

  function download() {
    const made = document.createElement("a");
    made.href = URL.createObjectURL(new Blob([JSON.stringify(TABLES)], { type: "application/json" }));
    made.download = "benchback-tables.json";
    made.click();
    URL.revokeObjectURL(made.href);
  }

  function closeFilters(event) {
    for (const box of document.querySelectorAll(".filter[open]")) {
      if (event.type === "keydown" ? event.key === "Escape" : !box.contains(event.target)) {
        box.open = false;
        if (event.type === "keydown") box.querySelector("summary").focus();
      }
    }
  }

  const dark = matchMedia("(prefers-color-scheme: dark)");
  setTheme(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => { setTheme(dark.matches ? "dark" : "light"); redraw(); });
  document.getElementById("theme").addEventListener("click", () => { setTheme(isDark() ? "light" : "dark"); redraw(); });
  document.getElementById("filters").addEventListener("change", choose);
  document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("reset").addEventListener("click", () => {
    for (const name of FILTERS) chosen[name] = new Set(DATA.filters[name]);
    writeAddress();
    showChoices();
    drawAll();
  });
  document.getElementById("download").addEventListener("click", download);
  document.addEventListener("click", closeFilters);
  document.addEventListener("keydown", closeFilters);
  for (const figure of DATA.figures) {
    const twin = document.querySelector(`#${figure.id} .twin`);
    twin.addEventListener("toggle", () => { if (twin.open) fill(twin.querySelector(".scroll"), figure, selected(figure)); });
  }
  window.benchback = { views, selected, figures: DATA.figures };
  readAddress();
  showChoices();
  drawAll();
})();
