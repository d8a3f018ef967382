"use strict";

(function () {
  const { h, put, keepFocus, byId, list, record, words, app, on, model, format } = Railyard;

  let allColumns = false;
  /** Whether the reader unfolded checks, by run, point and title of the verdict. */
  const unfolded = new Map();

  /** The table rows that belong to the selected point are marked. */
  function mark(first) {
    let seen = false;
    for (const row of byId("points").querySelectorAll("tr[data-points]")) {
      const chosen = JSON.parse(row.dataset.points).includes(app.point);
      row.setAttribute("aria-selected", chosen);
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
  function tableRow(row, columns) {
    const known = model.numbers(),
      points = list(row.points).filter((number) => known.includes(number));
    const cells = list(row.cells).map((cell, i) => h("td", { class: look(record(columns[i])) }, words(cell)));
    const kind = row.faithful === false ? "tr.unfaithful" : "tr";
    if (!points.length) return h(kind, cells);
    const acts = { onclick: () => choose(points), onkeydown: (e) => rowKey(e, points) };
    return h(`${kind}.pick`, { "data-points": JSON.stringify(points), tabindex: -1, ...acts }, cells);
  }

  /** Classes of the cells of a column. */
  function look(column) {
    return `${column.left ? "left" : ""}${column.wide ? " wide" : ""}${column.name === "faithful" ? " faithful" : ""}`;
  }

  /** A button that shows the columns of a table for which there is little room, where it has some. */
  function more(columns) {
    const wide = columns.filter((column) => column.wide).length;
    const flip = () => {
      allColumns = !allColumns;
      draw();
    };
    const says = allColumns ? "fewer columns" : format.counted(wide, "more column");
    return wide > 0 && h("button.link", { onclick: flip }, says);
  }

  /** A table of points as the report of the run has it. */
  function table(given) {
    const columns = list(given.columns),
      rows = list(given.rows).map((row) => tableRow(row, columns));
    rows.find((row) => row.dataset.points)?.setAttribute("tabindex", 0);
    const head = columns.map((column) => h("th", { scope: "col", class: look(column) }, words(column.name)));
    const caption = h("caption", words(given.title), " ", more(columns));
    return Railyard.table(allColumns ? "points" : "points.narrow", head, rows, caption);
  }

  /** How long a point took, or is expected to take. */
  function duration(point) {
    if (typeof point.duration === "number" || !(point.expected_s > 0)) return format.duration(point.duration);
    return `${format.duration(point.expected_s)} expected`;
  }

  /** A list of points for runs without a table yet: those measured so far and the one under way. */
  function plainTable() {
    const rows = list(app.overview.points).map((point) => ({
      cells: [String(point.number), words(point.title), duration(point), words(point.state)],
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
    const rows = list(app.overview.tables).flatMap((each) => list(each.rows)),
      reached = new Set(rows.flatMap((row) => list(row.points)));
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
    const button = (point) =>
      h("button.link", { "data-point": point.number, onclick: () => model.setPoint(point.number) }, nameOf(point));
    return h("p.others", "Also: ", found.map(button));
  }

  /** One check of a verdict as a row: name, what it says, and whether it was kept. */
  function check(given) {
    const state = given.judged === false ? "not judged" : given.ok ? "kept" : "FAILED";
    const cells = [words(given.name), words(given.says), state].map((cell) => h("td.left", cell));
    return h(state === "FAILED" ? "tr.failed" : "tr", cells);
  }

  /** All checks of a verdict on demand, failed ones first; open where one failed, or as the reader left them. */
  function checks(given) {
    const all = list(given.checks),
      key = JSON.stringify([app.run, app.point, given.title]);
    if (!all.length) return null;
    const rank = (each) => (each.judged === false ? 2 : each.ok ? 1 : 0);
    const failed = all.filter((each) => rank(each) === 0).length;
    const says = format.counted(failed || all.length, "check") + (failed ? ` of ${all.length} failed` : "");
    const rows = [...all].sort((a, b) => rank(a) - rank(b)).map(check);
    return h(
      "details",
      { open: unfolded.get(key) ?? failed > 0 },
      h("summary", { onclick: (e) => unfolded.set(key, !e.currentTarget.parentNode.open) }, says),
      Railyard.table("checks", null, rows),
    );
  }

  /** The measured and predicted time, such as that of a step, and by how much they differ. */
  function measured(given) {
    const facts = [],
      what = given.what ? ` ${words(given.what)}` : "";
    if (typeof given.measured_s === "number") facts.push([`measured${what}`, format.duration(given.measured_s, 4)]);
    if (typeof given.predicted_s === "number") facts.push(["predicted", format.duration(given.predicted_s, 4)]);
    if (given.measured_s > 0 && given.predicted_s > 0)
      facts.push(["difference", format.signed((given.measured_s / given.predicted_s - 1) * 100)]);
    return facts.map(([name, value]) => h("span.fact", h("span", name), h("b", value)));
  }

  /** The sign of a verdict. */
  function sign(given) {
    if (given.faithful === false) return h("strong.stamp.small", "NOT FAITHFUL");
    return given.faithful ? h("span.good", "✓ faithful") : null;
  }

  /** What a verdict says, and its checks. */
  function reasons(given) {
    const says = given.verdict && given.verdict !== "faithful" && h("p", words(given.verdict));
    return [says, checks(given), given.checks_of && h("p.quiet", words(given.checks_of))];
  }

  /** One of several verdicts of a point, with its title. */
  function oneOf(given) {
    return [h("div.verdict", h("h4", words(given.title)), sign(given), measured(given)), ...reasons(given)];
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
    put(
      place,
      h(
        "div.verdict",
        h("h3", words(record(entry).title || record(found[0]).title)),
        marking && h("span.tag", marking),
        sign({ faithful }),
        stamps.map((stamp) => h("strong.stamp.small", words(stamp.kind))),
        record(entry).state === "running" && h("span.tag", "under way"),
        one && measured(one),
      ),
      one ? reasons(one) : found.map(oneOf),
    );
  }

  /** The tables of a run and the verdict of the selected point. */
  function draw() {
    const place = byId("points"),
      kept = place.scrollTop;
    const tables = list(app.overview.tables).map(table),
      drawn = [h("div", { id: "verdict" }), tables.length ? tables : plainTable(), otherPoints()];
    keepFocus(place, "points", () => put(place, ...drawn));
    if (!place.textContent) put(place, h("p.quiet", "This run has no points."));
    verdict();
    mark(true);
    place.scrollTop = kept;
  }

  /** Select the point that comes `by` places after the selected one. */
  function step(by) {
    const numbers = model.numbers(),
      next = numbers[numbers.indexOf(app.point) + by];
    if (next !== undefined) model.setPoint(next);
  }

  on("overview", draw);
  on("point", () => {
    mark();
    verdict();
  });

  Railyard.points = { step };
})();
