"use strict";

(function () {
  const { h, put, byId, list, record, words, app, on, model } = Railyard;
  const LEAST_PERCENT = 1;

  /** Show a point of one of the two runs. */
  function open(run, numbers) {
    model.setRun(run, list(numbers)[0]);
    model.setView("run");
  }

  /** Buttons that lead to the points behind a row, one for each run. */
  function ways(row) {
    return list(row.points).map((numbers, run) =>
      list(numbers).length && app.overviews[run]
        ? h("button", {
            class: "link",
            text: "AB"[run],
            title: `Show this point of run ${"AB"[run]}`,
            "aria-label": `Show ${words(row.title)} of run ${"AB"[run]}`,
            on: { click: () => open(run, numbers) },
          })
        : null,
    );
  }

  /** Where the interval of a difference lies: clear of zero, which is what all emphasis means, or around it. */
  function side(given) {
    const interval = list(given);
    if (interval.length !== 2) return "";
    return interval[0] > 0 || interval[1] < 0 ? "clear" : "";
  }

  /** A row of a table: one point in both runs. */
  function tableRow(row, columns) {
    const cells = list(row.cells).map((cell, i) =>
      h("td", { class: record(columns[i]).left ? "left" : "", text: words(cell) }),
    );
    const unfaithful = list(row.faithful).includes(false);
    return h(
      "tr",
      { class: `${side(row.interval)}${unfaithful ? " unfaithful" : ""}` },
      cells,
      h("td", { class: "left ways" }, ways(row)),
    );
  }

  /** The differences B - A of a table on one axis, as percent where all are known, with their intervals. */
  function forest(rows) {
    const known = rows.filter((row) => typeof row.percent === "number");
    if (known.length < 1) return null;
    const reach =
      Math.max(
        LEAST_PERCENT,
        ...known
          .flatMap((row) => [row.percent, ...list(row.percent_interval)])
          .filter(isFinite)
          .map(Math.abs),
      ) * 1.1;
    const tall = 20,
      left = 190,
      width = 560,
      x = (value) => left + ((value + reach) / (2 * reach)) * (width - left - 60);
    const drawn = Railyard.s("svg", {
      class: "forest",
      viewBox: `0 0 ${width} ${known.length * tall + 26}`,
      role: "img",
      "aria-label": "Differences in per cent with their 95 % intervals",
    });
    drawn.append(Railyard.s("path", { class: "zero", d: `M${x(0)} 4V${known.length * tall + 8}` }));
    known.forEach((row, i) => drawn.append(forestRow(row, x, i * tall + 14, width)));
    for (const [value, text] of [
      [-reach / 1.1, `−${(reach / 1.1).toPrecision(2)} %`],
      [0, "0"],
      [reach / 1.1, `+${(reach / 1.1).toPrecision(2)} %`],
    ]) {
      drawn.append(Railyard.s("text", { x: x(value), y: known.length * tall + 21, class: "tick", text }));
    }
    return drawn;
  }

  /** One difference: its interval as a line, its value as a dot and as text. */
  function forestRow(row, x, y, width) {
    const s = Railyard.s,
      interval = list(row.percent_interval),
      title = words(row.title);
    return s(
      "g",
      { class: side(row.interval) || "around" },
      s("text", { x: 0, y: y + 4, class: "label", text: title.length > 30 ? `${title.slice(0, 29)}…` : title }),
      interval.length === 2
        ? s("path", {
            class: "whisker",
            d: `M${x(interval[0])} ${y}H${x(interval[1])}M${x(interval[0])} ${y - 4}v8M${x(interval[1])} ${y - 4}v8`,
          })
        : null,
      s("circle", { cx: x(row.percent), cy: y, r: 4 }),
      s("text", {
        x: width,
        y: y + 4,
        class: "value",
        text: `${row.percent >= 0 ? "+" : "−"}${Math.abs(row.percent).toFixed(1)} %`,
      }),
    );
  }

  /** A table of one number in both runs; tables that are not the main ones are folded. */
  function table(given) {
    const columns = list(given.columns),
      rows = list(given.rows);
    const head = columns.map((column) =>
      h(
        "th",
        { scope: "col", class: column.left ? "left" : "" },
        words(column.name)
          .split("\n")
          .map((part, i) => [i ? h("br") : null, part]),
      ),
    );
    const body = h(
      "div",
      { class: "scroll-x" },
      h(
        "table",
        { class: "points" },
        h("thead", {}, h("tr", {}, head, h("th", { class: "left", scope: "col", text: "show" }))),
        h(
          "tbody",
          {},
          rows.map((row) => tableRow(row, columns)),
        ),
      ),
    );
    if (!given.main) return h("details", {}, h("summary", { text: `${words(given.title)} (${rows.length})` }), body);
    return h(
      "section",
      { class: "compared" },
      h("h3", { text: words(given.title) }),
      h("div", { class: "side-by-side" }, body, forest(rows)),
    );
  }

  /** Settings, versions and machines that differ between the runs. */
  function differs(given) {
    const rows = list(given.differs);
    if (!rows.length)
      return h("p", { class: "quiet", text: "Both runs have the same settings, versions and machine." });
    const body = rows.map((row) =>
      h(
        "tr",
        {},
        h("td", { class: "left quiet", text: words(row.group) }),
        h("td", { class: "left", text: words(row.key) }),
        list(row.values).map((value) => h("td", { class: "left", text: words(value) })),
      ),
    );
    const settings = rows.filter((row) => row.group === "setting" || row.group === "scale").length;
    return h(
      "details",
      { open: rows.length <= 8 },
      h("summary", {
        text: `${Railyard.format.counted(rows.length, "difference")} between the runs, ${settings} in settings`,
      }),
      h(
        "div",
        { class: "scroll-x" },
        h(
          "table",
          { class: "checks" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ["", "", "A", "B"].map((name) => h("th", { class: "left", text: name })),
            ),
          ),
          h("tbody", {}, body),
        ),
      ),
    );
  }

  /** Points that only one of the runs has. */
  function unmatched(given) {
    const rows = list(given.unmatched);
    if (!rows.length) return null;
    return h(
      "div",
      {},
      h("h3", { text: "In one run only" }),
      h(
        "ul",
        {},
        rows.map((row) =>
          h(
            "li",
            {},
            `Only in ${"AB"[row.run] || "?"}: ${words(row.title)} `,
            list(row.points).length
              ? h("button", { class: "link", text: "show", on: { click: () => open(row.run, row.points) } })
              : null,
          ),
        ),
      ),
    );
  }

  /** The comparison of the two runs of a report. */
  function draw() {
    if (app.view !== "comparison") return;
    const given = app.source.comparison;
    put(
      byId("comparison"),
      h("h2", { text: "Comparison" }),
      h(
        "p",
        { class: "names" },
        list(given.names).map((name, i) => h("span", {}, h("b", { text: "AB"[i] }), ` ${words(name)} `)),
      ),
      list(given.notes).map((note) => h("div", { class: "stamp", text: words(note) })),
      list(given.tables).map(table),
      unmatched(given),
      differs(given),
      list(given.remarks).map((remark) => h("p", { class: "quiet", text: words(remark) })),
    );
  }

  on("view", draw);
})();
