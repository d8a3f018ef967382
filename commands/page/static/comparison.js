"use strict";

(function () {
  const { h, s, put, byId, list, record, words, app, on, model, format } = Railyard;
  const LEAST_PERCENT = 1,
    ROW = 20;

  /** Show a point of one of the two runs. */
  function open(run, numbers) {
    model.setRun(run, list(numbers)[0]);
    model.setView("run");
  }

  /** Buttons that lead to the points behind a row, one for each run. */
  function ways(row) {
    return list(row.points).map((numbers, run) => {
      const name = "AB"[run],
        given = { title: `Show this point of run ${name}`, "aria-label": `Show ${words(row.title)} of run ${name}` };
      if (!list(numbers).length || !app.overviews[run]) return null;
      return h("button.link", { ...given, onclick: () => open(run, numbers) }, name);
    });
  }

  /** Where the interval of a difference lies: clear of zero, which is what all emphasis means, or around it. */
  function side(given) {
    const interval = list(given);
    if (interval.length !== 2) return "";
    return interval[0] > 0 || interval[1] < 0 ? "clear" : "";
  }

  /** A row of a table: one point in both runs. */
  function tableRow(row, columns) {
    const cells = list(row.cells).map((cell, i) => h(record(columns[i]).left ? "td.left" : "td", words(cell)));
    const unfaithful = list(row.faithful).includes(false) ? " unfaithful" : "";
    return h("tr", { class: side(row.interval) + unfaithful }, cells, h("td.left.ways", ways(row)));
  }

  /** The differences B - A of a table on one axis, as percent where all are known, with their intervals. */
  function forest(rows) {
    const known = rows.filter((row) => typeof row.percent === "number");
    if (known.length < 1) return null;
    const values = known.flatMap((row) => [row.percent, ...list(row.percent_interval)]).filter(isFinite),
      most = Math.max(LEAST_PERCENT, ...values.map(Math.abs)),
      reach = most * 1.1;
    const tall = known.length * ROW,
      left = 190,
      width = 560,
      x = (value) => left + ((value + reach) / (2 * reach)) * (width - left - 60),
      tick = (value, text) => s("text.tick", { x: x(value), y: tall + 21 }, text);
    const label = "Differences in per cent with their 95 % intervals";
    return s(
      "svg.forest",
      { viewBox: `0 0 ${width} ${tall + 26}`, role: "img", "aria-label": label },
      s("path.zero", { d: `M${x(0)} 4V${tall + 8}` }),
      ...known.map((row, i) => forestRow(row, x, i * ROW + 14, width)),
      tick(-most, `−${most.toPrecision(2)} %`),
      tick(0, "0"),
      tick(most, `+${most.toPrecision(2)} %`),
    );
  }

  /** One difference: its interval as a line, its value as a dot and as text. */
  function forestRow(row, x, y, width) {
    const interval = list(row.percent_interval),
      [low, high] = interval.map(x),
      title = words(row.title);
    return s(
      "g",
      { class: side(row.interval) || "around" },
      s("text.label", { x: 0, y: y + 4 }, title.length > 30 ? `${title.slice(0, 29)}…` : title),
      interval.length === 2 && s("path.whisker", { d: `M${low} ${y}H${high}M${low} ${y - 4}v8M${high} ${y - 4}v8` }),
      s("circle", { cx: x(row.percent), cy: y, r: 4 }),
      s("text.value", { x: width, y: y + 4 }, format.signed(row.percent)),
    );
  }

  /** A table of one number in both runs; tables that are not the main ones are folded. */
  function table(given) {
    const columns = list(given.columns),
      rows = list(given.rows);
    const head = [...columns, { name: "show", left: true }].map((column) =>
      h(column.left ? "th.left" : "th", { scope: "col" }, words(column.name)),
    );
    const drawn = rows.map((row) => tableRow(row, columns)),
      body = Railyard.table("points", head, drawn);
    if (!given.main) return h("details", h("summary", `${words(given.title)} (${rows.length})`), body);
    return h("section.compared", h("h3", words(given.title)), h("div.side-by-side", body, forest(rows)));
  }

  /** Settings, versions and machines that differ between the runs. */
  function differs(given) {
    const rows = list(given.differs);
    if (!rows.length) return h("p.quiet", "Both runs have the same settings, versions and machine.");
    const body = rows.map((row) => {
      const cells = [row.key, ...list(row.values)].map((value) => h("td.left", words(value)));
      return h("tr", h("td.left.quiet", words(row.group)), cells);
    });
    const settings = rows.filter((row) => row.group === "setting" || row.group === "scale").length;
    const head = ["", "", "A", "B"].map((name) => h("th.left", name)),
      says = `${format.counted(rows.length, "difference")} between the runs, ${settings} in settings`;
    return h("details", { open: rows.length <= 8 }, h("summary", says), Railyard.table("checks", head, body));
  }

  /** Points that only one of the runs has. */
  function unmatched(given) {
    const rows = list(given.unmatched);
    if (!rows.length) return null;
    const items = rows.map((row) => {
      const show = h("button.link", { onclick: () => open(row.run, row.points) }, "show");
      return h("li", `Only in ${"AB"[row.run] || "?"}: ${words(row.title)} `, list(row.points).length > 0 && show);
    });
    return h("div", h("h3", "In one run only"), h("ul", items));
  }

  /** The comparison of the two runs of a report. */
  function draw() {
    if (app.view !== "comparison") return;
    const given = app.source.comparison;
    put(
      byId("comparison"),
      h("h2", "Comparison"),
      h("p.names", ...list(given.names).map((name, i) => h("span", h("b", "AB"[i]), ` ${words(name)} `))),
      list(given.notes).map((note) => h("div.stamp", words(note))),
      list(given.tables).map(table),
      unmatched(given),
      differs(given),
      list(given.remarks).map((remark) => h("p.quiet", words(remark))),
    );
  }

  on("view", draw);
})();
