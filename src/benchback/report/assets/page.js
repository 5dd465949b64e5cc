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

  // A matrix shows cells that differ as a range, and so needs them beside what is over all of them.
  function forMatrix(row, name, column) {
    if (name === column) return row[name] !== "*" && chosen[name].has(row[name]);
    return row[name] === "*" ? !isActive(name) : chosen[name].has(row[name]);
  }

  function selected(figure) {
    let rows = TABLES[figure.data].filter((row) =>
      Object.entries(figure.where).every(([name, value]) => row[name] === value));
    for (const name of FILTERS) {
      const hasTotals = rows.some((row) => row[name] === "*");
      rows = rows.filter((row) =>
        figure.matrix && hasTotals ? forMatrix(row, name, figure.matrix) : passes(row, name, hasTotals));
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
  const VARIANTS = new Set(["variant", "reference", "other", "overtakes"]);

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
        if (VARIANTS.has(name) && DATA.names[row[name]]) {
          cell.textContent = DATA.names[row[name]];
          cell.title = row[name];
          cell.className = "name";
        }
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
      made.columns = Math.max(1, Math.min(made.columns, panels, Math.floor(width / 310)));
      const room = narrow ? 60 : made.usermeta.room;
      made.spacing = { ...made.spacing, column: room };
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

  // What there is to show of a figure: none where its column is empty in all rows.
  function showable(figure) {
    const rows = selected(figure);
    const isShown = (row) => figure.value.some((name) => row[name] !== null && row[name] !== undefined);
    return !figure.value.length || rows.some(isShown) ? rows : [];
  }

  const isFolded = (holder) => holder.hidden || holder.closest("details.section:not([open])") !== null;

  async function draw(figure) {
    const holder = document.getElementById(figure.id);
    if (isFolded(holder)) return;
    const rows = showable(figure);
    holder.classList.toggle("nothing", rows.length === 0);
    updateTable(figure, rows);
    if (figure.matrix && rows.length) {
      const box = document.getElementById(`matrix-${figure.id}`);
      return matrices.draw(box, rows, figure.matrix, DATA.orders, DATA.names);
    }
    if (!figure.spec || !rows.length) return;
    const box = holder.querySelector(".chart");
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
      box.setAttribute("aria-label", figure.title);
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

  // One after another, those of open sections; a newer request takes over from one that is under way.
  let turn = 0;
  async function drawAll() {
    const mine = ++turn;
    document.documentElement.dataset.state = "drawing";
    const runs = (TABLES.runs || []).filter((row) => FILTERS.every((name) => passes(row, name, false)));
    document.getElementById("status").textContent = `${runs.length} of ${(TABLES.runs || []).length} runs chosen`;
    answer();
    nameUnchosen();
    for (const figure of DATA.figures) {
      if (mine !== turn) return;
      await draw(figure);
    }
    document.documentElement.dataset.state = "ready";
  }

  // Figures that the choice leaves nothing of are not shown but named; so are sections of nothing else.
  function nameUnchosen() {
    const gone = DATA.figures.filter((figure) => !showable(figure).length);
    for (const section of document.querySelectorAll("details.section")) {
      const inside = DATA.figures.filter((figure) => `s${figure.section}` === section.id);
      section.classList.toggle("nothing", inside.length > 0 && inside.every((figure) => gone.includes(figure)));
    }
    const titles = gone.map((figure) => figure.title).join(", ");
    document.getElementById("unchosen").textContent = titles ? `Nothing of this choice: ${titles}.` : "";
  }

  // The sentences for what is chosen: of one environment or all, one model or all, and each by itself otherwise.
  function answer() {
    const places = (name) => (isActive(name) ? [...chosen[name]] : ["*"]);
    const wanted = places("env").flatMap((env) => places("model").map((model) => [env, model]));
    const settings = DATA.answers.filter((x) => ["algorithm", "device", "timing", "agents"].every((name) => chosen[name].has(x[name])));
    const isChosen = (x) => x.backends.length === chosen.backend.size && x.backends.every((name) => chosen.backend.has(name));
    const among = settings.some(isChosen) ? settings.filter(isChosen) : settings.filter((x) => x.backends.length === DATA.filters.backend.length);
    const found = wanted.slice(0, MOST_ANSWERS).map(([env, model]) => among.find((x) => x.env === env && x.model === model)).filter(Boolean);
    const lines = found.map((x) => paragraph("recommendation", placeText(x) + x.recommendation));
    if (!lines.length) lines.push(paragraph("recommendation", "Nothing of what is chosen can be compared."));
    if (wanted.length > MOST_ANSWERS) lines.push(paragraph("", `${wanted.length - MOST_ANSWERS} more are chosen; choose fewer to read about each.`));
    if (found.length && !isChosen(found[0])) lines.push(paragraph("", "Backends that are not chosen count in the sentence, too."));
    document.getElementById("answer").replaceChildren(...lines);
    const evidence = [...new Set(found.map((x) => x.evidence))].filter(Boolean);
    document.getElementById("evidence").textContent = evidence.join(" ");
    document.getElementById("sentences").replaceChildren(...found.flatMap(sentences));
  }
  const MOST_ANSWERS = 4;

  function placeText(x) {
    const place = [x.env, x.model].filter((value) => value !== "*").join(", ");
    return place ? `${place}: ` : "";
  }

  function paragraph(kind, text) {
    const made = document.createElement("p");
    made.className = kind;
    made.textContent = text;
    return made;
  }

  function sentences(x) {
    const parts = [["", x.comparisons], ["What it depends on:", x.depends], ["Not in the averages:", x.missing]];
    const made = [paragraph("setting", `${placeText(x)}${x.title}`)];
    for (const [heading, texts] of parts.filter(([, texts]) => texts.length)) {
      const list = document.createElement("ul");
      for (const text of texts) {
        list.append(document.createElement("li"));
        list.lastChild.textContent = text;
      }
      made.push(...(heading ? [paragraph("", heading)] : []), list);
    }
    return made;
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

  // Tabs of the same name are chosen together: who asks for totals here wants them there.
  function showTab(name) {
    for (const family of document.querySelectorAll(".family")) {
      const tabs = [...family.querySelectorAll(".tabs button")];
      const wanted = tabs.find((tab) => tab.textContent === name);
      for (const tab of wanted ? tabs : []) {
        tab.setAttribute("aria-pressed", String(tab === wanted));
        document.getElementById(tab.dataset.shows).hidden = tab !== wanted;
      }
    }
  }

  // A link to a section, or to a figure in it, opens it.
  function openTarget() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const section = target && target.closest("details.section");
    if (!section) return;
    section.open = true;
    target.scrollIntoView();
  }

  function showChoices() {
    for (const name of FILTERS) {
      const box = document.querySelector(`[data-filter="${name}"]`);
      if (!box) continue;
      for (const input of box.querySelectorAll("input")) input.checked = chosen[name].has(input.value);
      box.classList.toggle("active", isActive(name));
      box.querySelector("summary span").textContent = isActive(name) ? [...chosen[name]].join(", ") || "none" : "all";
    }
    for (const button of document.querySelectorAll(".alone")) {
      const alone = DATA.families[button.dataset.family];
      const isAlone = alone.length === chosen.backend.size && alone.every((name) => chosen.backend.has(name));
      button.setAttribute("aria-pressed", String(isAlone));
    }
  }

  function choose(event) {
    const { name, value, checked } = event.target;
    if (!(name in chosen)) return;
    if (checked) chosen[name].add(value);
    else chosen[name].delete(value);
    chosen[name] = new Set(DATA.filters[name].filter((x) => chosen[name].has(x)));
    changed();
  }

  function changed() {
    writeAddress();
    showChoices();
    drawAll();
  }

  function chooseFamily(button) {
    const alone = button.getAttribute("aria-pressed") !== "true";
    chosen.backend = new Set(alone ? DATA.families[button.dataset.family] : DATA.filters.backend);
    changed();
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
    changed();
  });
  for (const button of document.querySelectorAll(".alone")) button.addEventListener("click", () => chooseFamily(button));
  for (const tab of document.querySelectorAll(".tabs button")) {
    tab.addEventListener("click", () => { showTab(tab.textContent); drawAll(); });
  }
  for (const section of document.querySelectorAll("details.section")) section.addEventListener("toggle", () => section.open && drawAll());
  document.getElementById("unfold").addEventListener("click", () => {
    const sections = [...document.querySelectorAll("details.section")];
    const open = sections.some((section) => !section.open);
    for (const section of sections) section.open = open;
    document.getElementById("unfold").textContent = open ? "Close all" : "Open all";
  });
  window.addEventListener("hashchange", openTarget);
  document.getElementById("download").addEventListener("click", download);
  document.addEventListener("click", closeFilters);
  document.addEventListener("keydown", closeFilters);
  for (const figure of DATA.figures) {
    const twin = document.querySelector(`#${figure.id} .twin`);
    twin.addEventListener("toggle", () => { if (twin.open) updateTable(figure, selected(figure)); });
  }
  window.benchback = { views, selected, drawAll, figures: DATA.figures, names: DATA.names };
  readAddress();
  showChoices();
  openTarget();
  drawAll();
})();
