"use strict";

(function () {
  const { h, put, byId, list, record, words, app, on, model, format } = Railyard;

  let allColumns = false;
  /** Whether the reader unfolded checks, by run, point and title of the verdict. */
  const unfolded = new Map();

  /** The table rows that belong to the selected point are marked. */
  function mark(first) {
    let seen = false;
    for (const row of byId("points").querySelectorAll("tr[data-points]")) {
      const chosen = JSON.parse(row.dataset.points).includes(app.point);
      row.setAttribute("aria-selected", chosen ? "true" : "false");
      if (chosen && !seen && !first) into(byId("points"), row);
      seen = seen || chosen;
    }
  }

  /** Scroll a panel so far that a row in it can be seen, without moving the page. */
  function into(panel, row) {
    const box = panel.getBoundingClientRect(),
      place = row.getBoundingClientRect();
    if (place.top < box.top) panel.scrollTop += place.top - box.top - 30;
    else if (place.bottom > box.bottom) panel.scrollTop += place.bottom - box.bottom + 8;
  }

  /** Select the first point of a row; of a row with repeats, the next one at each press. */
  function choose(points) {
    const at = points.indexOf(app.point);
    model.setPoint(points[(at + 1) % points.length]);
  }

  /** Move from row to row, and select with Enter. */
  function rowKey(e, points) {
    const near = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[e.key];
    if (e.key === "Enter" || e.key === " ") choose(points);
    else if (near && e.currentTarget[near]) e.currentTarget[near].focus();
    else if (!near) return;
    e.preventDefault();
    e.stopPropagation();
  }

  /** One row of a table of points. */
  function tableRow(row, columns, first) {
    const known = list(app.overview.points).map((point) => point.number);
    const points = list(row.points).filter((number) => known.includes(number));
    const cells = list(row.cells).map((cell, i) =>
      h("td", {
        class: look(record(columns[i])),
        text: words(cell),
      }),
    );
    const given = { class: row.faithful === false ? "unfaithful" : "" };
    if (points.length) {
      Object.assign(given, {
        "data-points": JSON.stringify(points),
        tabindex: first ? 0 : -1,
        class: `${given.class} pick`,
        on: { click: () => choose(points), keydown: (e) => rowKey(e, points) },
      });
    }
    return h("tr", given, cells);
  }

  /** Classes of the cells of a column. */
  function look(column) {
    return `${column.left ? "left" : ""}${column.wide ? " wide" : ""}`;
  }

  /** A button that shows the columns of a table for which there is little room; null if it has none. */
  function more(columns) {
    const wide = columns.filter((column) => column.wide).length;
    if (!wide) return null;
    const says = () => (allColumns ? "fewer columns" : `${format.counted(wide, "more column")}`);
    return h("button", {
      class: "link",
      text: says(),
      "aria-pressed": null,
      on: {
        click: () => {
          allColumns = !allColumns;
          draw();
        },
      },
    });
  }

  /** A table of points as the report of the run has it. */
  function table(given) {
    const columns = list(given.columns);
    let first = true;
    const rows = list(given.rows).map((row) => {
      const made = tableRow(row, columns, first);
      if (made.hasAttribute("tabindex")) first = false;
      return made;
    });
    const head = columns.map((column) =>
      h(
        "th",
        { scope: "col", class: look(column) },
        words(column.name)
          .split("\n")
          .map((part, i) => [i ? h("br") : null, part]),
      ),
    );
    return h(
      "div",
      { class: "scroll-x" },
      h(
        "table",
        { class: allColumns ? "points" : "points narrow" },
        h("caption", {}, words(given.title), " ", more(columns)),
        h("thead", {}, h("tr", {}, head)),
        h("tbody", {}, rows),
      ),
    );
  }

  /** How long a point took, or is expected to take. */
  function duration(point) {
    if (typeof point.duration === "number" || !(point.expected_s > 0)) return format.duration(point.duration);
    return `${format.duration(point.expected_s)} expected`;
  }

  /** A list of points for runs without a table yet: those measured so far and the one under way. */
  function plainTable() {
    const rows = list(app.overview.points).map((point) => ({
      cells: [
        String(point.number),
        words(point.title),
        duration(point),
        words(point.state),
      ],
      faithful: null,
      points: [point.number],
    }));
    const columns = [
      { name: "point" },
      { name: "what", left: true },
      { name: "duration" },
      { name: "state", left: true },
    ];
    return rows.length ? table({ title: "Points so far", columns, rows }) : null;
  }

  /** Points that no row of a table leads to: one under way, repeats that do not count. */
  function others() {
    const reached = new Set();
    for (const each of list(app.overview.tables))
      for (const row of list(each.rows)) list(row.points).forEach((n) => reached.add(n));
    return list(app.overview.points).filter((point) => !reached.has(point.number));
  }

  /** The name of a point outside of the tables: that of its attempt, and why no row has it. */
  function nameOf(point) {
    const verdict = list(app.overview.verdicts).find((each) => list(each.points).includes(point.number));
    const name = words(record(verdict).title || point.title);
    if (point.state === "running") return `${name} (under way)`;
    return point.counts === false && !name.includes("does not count") ? `${name} (does not count)` : name;
  }

  /** Buttons for points outside of the tables. */
  function otherPoints() {
    const found = list(app.overview.tables).length ? others() : [];
    if (!found.length) return null;
    return h(
      "p",
      { class: "others" },
      "Also: ",
      found.map((point) =>
        h("button", {
          class: "link",
          "data-point": point.number,
          on: { click: () => model.setPoint(point.number) },
          text: nameOf(point),
        }),
      ),
    );
  }

  /** One check of a verdict as a row: name, what it says, and whether it was kept. */
  function check(given) {
    const state = given.judged === false ? "not judged" : given.ok ? "kept" : "FAILED";
    return h(
      "tr",
      { class: state === "FAILED" ? "failed" : "" },
      h("td", { class: "left", text: words(given.name) }),
      h("td", { class: "left", text: words(given.says) }),
      h("td", { class: "left", text: state }),
    );
  }

  /** All checks of a verdict on demand, failed ones first; open where one failed, or as the reader left them. */
  function checks(given) {
    const all = list(given.checks),
      key = JSON.stringify([app.run, app.point, given.title]);
    if (!all.length) return null;
    const rank = (each) => (each.judged === false ? 2 : each.ok ? 1 : 0);
    const failed = all.filter((each) => rank(each) === 0).length;
    const says = failed
      ? `${format.counted(failed, "check")} of ${all.length} failed`
      : `${format.counted(all.length, "check")}`;
    return h(
      "details",
      { open: unfolded.get(key) ?? failed > 0 },
      h("summary", { text: says, on: { click: (e) => unfolded.set(key, !e.currentTarget.parentNode.open) } }),
      h(
        "div",
        { class: "scroll-x" },
        h(
          "table",
          { class: "checks" },
          h(
            "tbody",
            {},
            all
              .slice()
              .sort((a, b) => rank(a) - rank(b))
              .map(check),
          ),
        ),
      ),
    );
  }

  /** The measured and predicted time, such as that of a step, and by how much they differ. */
  function measured(given) {
    const facts = [],
      what = given.what ? ` ${words(given.what)}` : "";
    if (typeof given.measured_s === "number") facts.push([`measured${what}`, format.duration(given.measured_s, 4)]);
    if (typeof given.predicted_s === "number") facts.push(["predicted", format.duration(given.predicted_s, 4)]);
    if (given.measured_s > 0 && given.predicted_s > 0) {
      const off = (given.measured_s / given.predicted_s - 1) * 100;
      facts.push(["difference", `${off >= 0 ? "+" : "−"}${Math.abs(off).toFixed(1)} %`]);
    }
    return facts.map(([name, value]) =>
      h("span", { class: "fact" }, h("span", { text: name }), h("b", { text: value })),
    );
  }

  /** The sign of a verdict. */
  function sign(given) {
    if (given.faithful === false) return h("strong", { class: "stamp small", text: "NOT FAITHFUL" });
    return given.faithful ? h("span", { class: "good", text: "✓ faithful" }) : null;
  }

  /** What a verdict says, and its checks. */
  function reasons(given) {
    const says = given.verdict && given.verdict !== "faithful" ? h("p", { text: words(given.verdict) }) : null;
    const elsewhere = given.checks_of ? h("p", { class: "quiet", text: words(given.checks_of) }) : null;
    return [says, checks(given), elsewhere];
  }

  /** One of several verdicts of a point, with its title. */
  function oneOf(given) {
    return [
      h("div", { class: "verdict" }, h("h4", { text: words(given.title) }), sign(given), measured(given)),
      ...reasons(given),
    ];
  }

  /** Verdicts of the selected point, with the stamp repeated beside its title where one is not faithful. */
  function verdict() {
    const place = byId("verdict"),
      entry = model.pointEntry();
    if (!place) return;
    const found = model.verdicts(),
      marking = model.marking();
    if (!entry && !found.length) return put(place);
    const one = found.length === 1 ? found[0] : null,
      judged = found.map((each) => each.faithful);
    const faithful = judged.includes(false) ? false : judged.length > 0 && judged.every(Boolean) ? true : null;
    const stamps = model.stamps().filter((stamp) => stamp.kind !== "NOT FAITHFUL");
    const state = record(entry).state;
    put(
      place,
      h(
        "div",
        { class: "verdict" },
        h("h3", { text: words(record(entry).title || record(found[0]).title) }),
        marking ? h("span", { class: "tag", text: marking }) : null,
        sign({ faithful }),
        stamps.map((stamp) => h("strong", { class: "stamp small", text: words(stamp.kind) })),
        state === "running" ? h("span", { class: "tag", text: "under way" }) : null,
        one ? measured(one) : null,
      ),
      one ? reasons(one) : found.map(oneOf),
    );
  }

  /** The tables of a run and the verdict of the selected point. */
  function draw() {
    const place = byId("points"),
      kept = place.scrollTop;
    const focused =
      document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.points : null;
    const tables = list(app.overview.tables).map(table);
    put(place, h("div", { id: "verdict" }), tables.length ? tables : plainTable(), otherPoints());
    if (!place.textContent) put(place, h("p", { class: "quiet", text: "This run has no points." }));
    verdict();
    mark(true);
    place.scrollTop = kept;
    if (focused) {
      const again = [...place.querySelectorAll("tr[data-points]")].find((row) => row.dataset.points === focused);
      if (again) again.focus({ preventScroll: true });
    }
  }

  /** Select the point that comes `by` places after the selected one. */
  function step(by) {
    const numbers = list(app.overview.points).map((point) => point.number);
    const next = numbers[numbers.indexOf(app.point) + by];
    if (next !== undefined) model.setPoint(next);
  }

  on("overview", draw);
  on("point", () => {
    mark();
    verdict();
  });

  Railyard.points = { step };
})();
