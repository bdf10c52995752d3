"use strict";
(() => {
  const page = JSON.parse(document.getElementById("page-data").textContent);
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, attributes = {}, ...children) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "class") element.className = value;
      else if (name === "text") element.textContent = value;
      else element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  };
  const isNarrow = () => document.documentElement.clientWidth < 544;

  /* Figures: plotly.js is read when the first one comes near, and each is drawn when it does. */
  const hidden = new Set();
  const drawn = new Set();
  let plotly = null;
  const loadPlotly = () => {
    plotly ??= new Promise((done, failed) => {
      const source = document.getElementById("plotly-source");
      const script = document.createElement("script");
      if (source.dataset.src) {
        script.onload = () => done(window.Plotly);
        script.onerror = () => failed(new Error("plotly.js is missing beside this page"));
        script.src = source.dataset.src;
        document.head.append(script);
      } else {
        script.textContent = source.textContent;
        document.head.append(script);
        done(window.Plotly);
      }
    });
    return plotly;
  };
  /* A trace of one drafter goes as a whole, one with a bar for each drafter loses those bars. */
  const shownOf = (trace) => {
    const visible = !trace.legendgroup || !hidden.has(trace.legendgroup);
    const owners = trace.meta?.drafters;
    if (!owners) return { ...trace, visible };
    const kept = (values) => values.filter((_, at) => !hidden.has(owners[at]));
    return { ...trace, visible, x: kept(trace.x), y: kept(trace.y) };
  };
  const layoutOf = (figure) => {
    const layout = { ...figure.layout, template: page.template, autosize: true };
    if (isNarrow()) {
      layout.font = { size: 11 };
      layout.legend = { font: { size: 11 } };
    }
    return layout;
  };
  const draw = async (place) => {
    const figure = page.figures[place.id];
    if (!figure || drawn.has(place.id)) return;
    drawn.add(place.id);
    const Plotly = await loadPlotly();
    await Plotly.newPlot(place, figure.data.map(shownOf), layoutOf(figure), {
      displayModeBar: matchMedia("(hover: hover)").matches ? "hover" : false,
      modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]],
      displaylogo: false,
      responsive: true,
    });
    /* Its sentence says what it shows; loose tick labels say nothing. */
    all("svg", place).forEach((drawing) => drawing.setAttribute("aria-hidden", "true"));
    place.dataset.drawn = "yes";
  };
  const drawAll = () => Promise.all(all(".plot").map(draw));
  const near = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      near.unobserve(entry.target);
      draw(entry.target);
    }
  }, { rootMargin: "400px 0px" });
  all(".plot").forEach((place) => near.observe(place));
  addEventListener("beforeprint", () => {
    all("details").forEach((one) => { one.open = true; });
    drawAll();
  });

  /* Filter */
  const filter = document.getElementById("filter");
  const sides = new Map();
  const showDrafters = () => {
    hidden.clear();
    const names = new Set();
    for (const box of all("input[type=checkbox]", filter)) {
      if (box.checked) continue;
      hidden.add(`drafter ${box.value}`);
      names.add(box.value);
    }
    for (const row of all("tr[data-drafter]")) row.hidden = names.has(row.dataset.drafter);
    for (const id of drawn) {
      const place = document.getElementById(id);
      if (place.data) window.Plotly.react(place, page.figures[id].data.map(shownOf), place.layout);
    }
  };
  const showGroup = (select) => {
    const run = document.getElementById(select.dataset.run);
    const chosen = select.value;
    for (const part of all(".part[data-group]", run)) {
      part.hidden = chosen !== "" && part.dataset.group !== chosen;
      const fold = part.querySelector(":scope > details");
      if (fold && chosen === part.dataset.group) fold.open = true;
    }
    sides.set(run.id, chosen);
  };
  filter.hidden = false;
  filter.addEventListener("submit", (event) => event.preventDefault());
  filter.addEventListener("change", (event) => {
    if (event.target.type === "checkbox") showDrafters();
    else showGroup(event.target);
  });
  filter.reset();

  /* On a phone the answer comes before the contents. */
  const answer = document.querySelector(".answer");
  if (matchMedia("(max-width: 62rem)").matches && answer) {
    (answer.parentElement.querySelector(":scope > .notices") ?? answer).after(document.querySelector(".side"));
  }

  /* Contents follow the reader. */
  const links = new Map(all(".side nav a").map((link) => [link.hash.slice(1), link]));
  const read = new Set();
  const here = new IntersectionObserver((entries) => {
    for (const entry of entries) read[entry.isIntersecting ? "add" : "delete"](entry.target.id);
    const current = [...links.keys()].find((id) => read.has(id));
    if (!current) return;
    links.forEach((link, id) => {
      link.classList.toggle("here", id === current);
      if (id === current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    });
  }, { rootMargin: "-10% 0px -80% 0px" });
  all("main section[id]").forEach((section) => here.observe(section));

  /* Sorting: by number where there is one, missing ones last. */
  const sortRows = (table, column, direction) => {
    const body = table.tBodies[0];
    const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
    const isNumber = [...body.rows].some((row) => row.cells[column].dataset.value !== undefined);
    const rank = (row) => (isNumber ? parseFloat(row.cells[column].dataset.value ?? "NaN") : key(row));
    const rows = [...body.rows].sort((one, other) => {
      const [a, b] = [rank(one), rank(other)];
      if (isNumber) {
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return direction * (a - b);
      }
      return direction * a.localeCompare(b);
    });
    body.append(...rows);
  };
  for (const head of all("thead th")) {
    const table = head.closest("table");
    if (table.tBodies[0].rows.length < 2) continue;
    const button = make("button", { type: "button", class: "sort", text: head.textContent });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const isNumber = head.classList.contains("num");
      const before = head.getAttribute("aria-sort");
      const next = before ? (before === "ascending" ? "descending" : "ascending") : (isNumber ? "descending" : "ascending");
      all("th[aria-sort]", table).forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", next);
      sortRows(table, head.cellIndex, next === "ascending" ? 1 : -1);
    });
  }

  /* Copying */
  for (const button of all(".copy")) {
    button.hidden = false;
    button.addEventListener("click", async () => {
      const place = document.getElementById(button.dataset.copy);
      try {
        await navigator.clipboard.writeText(place.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(place);
        button.textContent = "Selected";
      }
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  /* Downloads */
  const valuesOf = (column, rows) => {
    if (column.values) return column.values;
    return Array.from({ length: rows }, (_, row) => column.words[column.index ? column.index[row] : 0]);
  };
  const recordsOf = (table) => {
    const columns = Object.entries(table.columns).map(([name, column]) => [name, valuesOf(column, table.rows)]);
    return Array.from({ length: table.rows }, (_, row) =>
      Object.fromEntries(columns.map(([name, values]) => [name, values[row]])));
  };
  const csvCell = (value) => {
    if (value === null) return "";
    if (typeof value !== "string") return String(value);
    /* A text that begins like a formula must not become one in a spreadsheet. */
    const safe = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const csvOf = (table) => {
    const names = Object.keys(table.columns);
    const lines = recordsOf(table).map((record) => names.map((name) => csvCell(record[name])).join(","));
    return [names.map(csvCell).join(","), ...lines, ""].join("\r\n");
  };
  const save = (name, type, text) => {
    const address = URL.createObjectURL(new Blob([text], { type }));
    const link = make("a", { href: address, download: name });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(address), 60000);
  };
  for (const list of all(".downloads")) {
    list.hidden = false;
    const tables = page.downloads[list.dataset.run];
    const stem = page.run_ids[list.dataset.run].replace(/[^\w.-]+/g, "-").slice(0, 80);
    for (const button of all("button", list)) {
      const name = button.dataset.table;
      button.addEventListener("click", () => {
        if (name) {
          save(`${stem}-${name}.csv`, "text/csv;charset=utf-8", csvOf(tables[name]));
        } else {
          const records = Object.fromEntries(Object.entries(tables).map(([key, table]) => [key, recordsOf(table)]));
          save(`${stem}.json`, "application/json", JSON.stringify(records, null, 1));
        }
      });
    }
  }

  /* Conversations */
  const stepsOf = (turn, drafter) => {
    const flat = turn.steps[drafter] ?? [];
    const steps = [];
    for (let at = 0; at < flat.length; at += 3) {
      const [drafted, accepted, committed] = flat.slice(at, at + 3);
      const text = turn.rejected[drafter]?.[at / 3];
      steps.push({ drafted, committed, kept: Math.min(accepted, committed), rejected: drafted - accepted, text });
    }
    return steps;
  };
  const sum = (steps, name) => steps.reduce((total, step) => total + step[name], 0);
  const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;
  const aside = (text) => make("span", { class: "unseen", text });
  /* Struck through, and said in words to those who hear the page; a line break would tear the reply apart. */
  const rejectedOf = (step, title, asText) => (asText && step.text
    ? make("del", { class: "rejected", title }, aside(" [rejected: "), step.text.replaceAll("\n", "\u21b5"), aside("] "))
    : make("span", { class: "rejected count", title, text: `\u2212${step.rejected}` }));
  const replyOf = (turn, steps, asText) => {
    const reply = make("div", { class: "reply", tabindex: "0", role: "group", "aria-label": "Reply of the target" });
    if (!turn.by_token || !steps.length) {
      reply.append(turn.pieces.join(""));
      return reply;
    }
    let at = 0;
    const take = (count) => { at += count; return turn.pieces.slice(at - count, at).join(""); };
    reply.append(make("span", { class: "first", text: take(1) }));
    for (const [number, step] of steps.entries()) {
      const title = `Step ${number + 1}: ${step.drafted} drafted, ${step.kept} accepted, ${step.rejected} rejected`;
      if (step.kept) reply.append(make("mark", { title, text: take(step.kept) }));
      if (step.rejected) reply.append(rejectedOf(step, title, asText));
      const own = step.committed - step.kept;
      if (own) reply.append(make("span", { class: "own", title, text: take(own) }));
    }
    reply.append(take(turn.pieces.length - at));
    return reply;
  };
  const stripOf = (steps) => {
    const strip = make("div", { class: "strip", "aria-hidden": "true" });
    for (const step of steps) {
      const one = make("span");
      one.style.flex = `${step.committed} 1 0`;
      for (const [name, count] of [["accepted", step.kept], ["own", step.committed - step.kept]]) {
        const bar = make("i", { class: name });
        bar.style.flex = `${count} 1 0`;
        if (count) one.append(bar);
      }
      strip.append(one);
    }
    return strip;
  };
  const explore = (section) => {
    const data = page.explorers[section.dataset.run];
    const view = section.querySelector(".explorer-view");
    const conversations = make("select");
    const families = new Map();
    data.conversations.forEach((one, number) => {
      const length = one.facts.context ? `, ${one.facts.context.toLocaleString("en")} tokens` : "";
      const family = `${one.facts.suite}, ${one.facts.sampling}, ${one.facts.kind}`;
      if (!families.has(family)) families.set(family, conversations.appendChild(make("optgroup", { label: family })));
      families.get(family).append(make("option", { value: number, text: one.name + length }));
    });
    const drafters = make("select");
    data.drafters.forEach((name, number) => drafters.append(make("option", { value: number, text: name })));
    const interesting = data.drafters.findIndex((_, number) =>
      data.conversations.some((one) => one.turns.some((turn) => (turn.steps[number] ?? []).some((count, at) => at % 3 === 1 && count))));
    drafters.value = String(Math.max(interesting, 0));
    const asText = make("input", { type: "checkbox" });
    asText.checked = true;
    const turns = make("div", { "aria-live": "polite" });
    const legend = make("p", { class: "legend" },
      make("span", {}, make("mark", { text: "drafted and accepted" })),
      make("span", {}, make("span", { class: "own", text: "the target's own" })),
      make("span", {}, make("span", { class: "first", text: "from prefill" })),
      make("span", {}, make("del", { class: "rejected", text: "drafted and rejected" })),
      make("span", {}, make("span", { class: "rejected count", text: "\u22123" }), " how many, without their text"));
    const show = () => {
      const chosen = Number(drafters.value);
      const conversation = data.conversations[Number(conversations.value)];
      view.style.setProperty("--tint", page.looks[data.drafters[chosen]] ?? "#7f7f7f");
      turns.replaceChildren(...conversation.turns.map((turn, number) => {
        const steps = stepsOf(turn, chosen);
        const element = make("div", { class: "turn" });
        element.append(make("h3", { text: `Turn ${number + 1}` }));
        const facts = `${turn.context.toLocaleString("en")} tokens of context, ${plural(turn.tokens, "token")} of reply`;
        element.append(make("p", { class: "explain", text: facts }));
        if (turn.request) element.append(make("blockquote", { class: "request", tabindex: "0", text: turn.request }));
        element.append(replyOf(turn, steps, asText.checked));
        if (steps.length) {
          const text = `${data.drafters[chosen]}: ${plural(steps.length, "step")}, ${plural(sum(steps, "kept"), "token")} accepted, `
            + `${sum(steps, "committed") - sum(steps, "kept")} of the target's own, ${plural(sum(steps, "rejected"), "drafted token")} rejected`;
          element.append(make("p", { class: "explain", text }));
        } else {
          element.append(make("p", { class: "explain", text: `${data.drafters[chosen]}: no steps recorded here` }));
        }
        const strips = make("div", { class: "strips", role: "group", "aria-label": "Steps of every drafter in this turn" });
        data.drafters.forEach((name, other) => {
          const walk = stepsOf(turn, other);
          if (!walk.length) return;
          const strip = stripOf(walk);
          strip.style.setProperty("--tint", page.looks[name] ?? "#7f7f7f");
          strips.append(make("div", { class: "walk" }, make("span", { class: "strip-name", text: name }), strip,
            make("span", { class: "num", text: `${(sum(walk, "committed") / walk.length).toFixed(2)} tokens per step` })));
        });
        if (strips.childElementCount) element.append(strips);
        return element;
      }));
    };
    view.append(
      make("div", { class: "explorer-bar" },
        make("label", {}, "Conversation", conversations), make("label", {}, "Drafter", drafters),
        make("label", { class: "box" }, asText, "Rejected tokens as text")),
      legend, turns);
    view.hidden = false;
    /* The question stands at the end of what the user says. */
    const toEnd = () => all(".request", turns).forEach((one) => { one.scrollTop = one.scrollHeight; });
    for (const choice of [conversations, drafters, asText]) {
      choice.addEventListener("change", () => { show(); toEnd(); });
    }
    show();
    toEnd();
  };
  const entering = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      entering.unobserve(entry.target);
      explore(entry.target);
    }
  }, { rootMargin: "600px 0px" });
  all(".explorer").forEach((section) => entering.observe(section));
  addEventListener("beforeprint", () => all(".explorer").forEach((section) => {
    if (section.querySelector(".explorer-view").hidden) { entering.unobserve(section); explore(section); }
  }));
  document.documentElement.dataset.ready = "yes";
})();
