"use strict";

/* Figures: their data stands in the page, and each is drawn in its place when it comes near the screen. */
const stored = document.getElementById("figures");
if (stored && window.Plotly) {
  const { template, figures } = JSON.parse(stored.textContent);
  const waiting = new Set(Object.keys(figures));
  const draw = (id) => {
    if (!waiting.delete(id)) return;
    Plotly.newPlot(id, figures[id].data, { ...figures[id].layout, template }, {
      displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
      displaylogo: false,
      responsive: true,
    });
  };
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) if (entry.isIntersecting) draw(entry.target.id);
  }, { rootMargin: "400px" });
  for (const id of waiting) near.observe(document.getElementById(id));
  addEventListener("beforeprint", () => [...waiting].forEach(draw));
}

const textOf = (cell) => cell.dataset.text ?? "";

/* Any table can be sorted by a column: up, down, and back to the order it came in. */
for (const table of document.querySelectorAll("table.grid")) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.textContent = head.textContent;
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const isNumber = head.classList.contains("num");
      const turns = isNumber ? ["descending", "ascending", null] : ["ascending", "descending", null];
      const turn = turns[(turns.indexOf(head.getAttribute("aria-sort")) + 1) % turns.length];
      for (const each of heads) each.removeAttribute("aria-sort");
      if (turn) head.setAttribute("aria-sort", turn);
      body.append(...(turn ? sorted(rows, column, isNumber, turn === "ascending" ? 1 : -1) : rows));
    });
  });
}

/* Cells without a number stay last, whichever way the others go. */
function sorted(rows, column, isNumber, sign) {
  const known = (row) => !isNumber || row.cells[column].dataset.value !== undefined;
  const compare = isNumber
    ? (a, b) => Number(a.cells[column].dataset.value) - Number(b.cells[column].dataset.value)
    : (a, b) => textOf(a.cells[column]).localeCompare(textOf(b.cells[column]), undefined, { numeric: true });
  return [
    ...rows.filter(known).sort((a, b) => sign * compare(a, b)),
    ...rows.filter((row) => !known(row)),
  ];
}

/* The leaderboard can be filtered; what is chosen stands in the address, so that it can be shared. */
const form = document.getElementById("filters");
const board = document.getElementById("board");
if (form && board) {
  const rows = [...board.tBodies[0].rows];
  const heads = [...board.tHead.rows[0].cells];
  const filters = heads
    .map((head, column) => ({ head, column, name: head.textContent }))
    .filter(({ head }) => head.dataset.chosen !== undefined);

  for (const filter of filters) {
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.name = filter.name;
    const values = [...new Map(rows.map((row) => {
      const cell = row.cells[filter.column];
      return [textOf(cell), Number(cell.dataset.value ?? -1)];
    }))].sort((a, b) => a[1] - b[1] || a[0].localeCompare(b[0]));
    for (const [value] of [["", 0], ...values]) {
      const option = document.createElement("option");
      option.value = value;
      option.textContent = value === "" ? "any" : value;
      select.append(option);
    }
    filter.select = select;
    filter.first = values.some(([value]) => value === filter.head.dataset.chosen) ? filter.head.dataset.chosen : "";
    label.append(filter.name, select);
    label.hidden = values.length < 2;
    form.append(label);
  }

  const reset = document.createElement("button");
  reset.type = "reset";
  reset.textContent = "Show all";
  form.append(reset);

  const choose = (valueOf) => {
    for (const filter of filters) {
      const value = valueOf(filter);
      filter.select.value = value;
      if (filter.select.value !== value) filter.select.value = "";
    }
  };

  const apply = () => {
    const chosen = filters.filter(({ select }) => select.value !== "");
    let count = 0;
    for (const row of rows) {
      row.hidden = !chosen.every(({ column, select }) => textOf(row.cells[column]) === select.value);
      count += row.hidden ? 0 : 1;
    }
    document.getElementById("shown").textContent = `${count} of ${rows.length} rows`;
  };

  const remember = () => {
    const chosen = filters.map(({ name, select }) => [name, select.value]);
    history.replaceState(null, "", `#filter?${new URLSearchParams(chosen)}`);
  };

  const recall = () => {
    if (!location.hash.startsWith("#filter?")) return false;
    const chosen = new URLSearchParams(location.hash.slice("#filter?".length));
    choose(({ name }) => chosen.get(name) ?? "");
    return true;
  };

  form.addEventListener("change", () => { apply(); remember(); });
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    choose(() => "");
    apply();
    remember();
  });
  addEventListener("hashchange", () => { if (recall()) apply(); });
  if (!recall()) choose(({ first }) => first);
  apply();
  form.hidden = false;
}
