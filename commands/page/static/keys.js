"use strict";

(function () {
  const { h, put, byId, app, on, model, points, pointing, timeline } = Railyard;
  const KEYS = [
    ["← →", "move the window", { ArrowLeft: () => pointing.pan(-0.15), ArrowRight: () => pointing.pan(0.15) }],
    [
      "Shift+← Shift+→",
      "move by a whole window",
      { "Shift+ArrowLeft": () => pointing.pan(-1), "Shift+ArrowRight": () => pointing.pan(1) },
    ],
    [
      "+ −",
      "zoom around the cursor",
      {
        "+": () => pointing.zoom(1.4),
        "=": () => pointing.zoom(1.4),
        "-": () => pointing.zoom(1 / 1.4),
        _: () => pointing.zoom(1 / 1.4),
      },
    ],
    ["Home End", "start and end of the point", { Home: () => edge(0), End: () => edge(1) }],
    ["0", "the whole point", { 0: () => pointing.whole() }],
    ["[ ]", "previous and next step", { "[": () => pointing.step(-1), "]": () => pointing.step(1) }],
    [
      ", .",
      "move the cursor to the previous and next change in the lane (↑ ↓ choose it on the time line)",
      { ",": () => hop(-1), ".": () => hop(1) },
    ],
    ["p n", "previous and next point", { p: () => points.step(-1), n: () => points.step(1) }],
    ["space", "follow a live run", { " ": () => pointing.setFollow(!app.follow) }],
    ["f", "fold or unfold the groups of lanes", { f: () => pointing.fold() }],
    ["c", "copy the link of this moment", { c: () => Railyard.moment.copy(byId("copy")) }],
    ["t", "light or dark colours", { t: () => byId("theme").click() }],
    ["?", "this help", { "?": () => help() }],
  ];
  const ACTS = Object.assign({}, ...KEYS.map(([, , acts]) => acts));

  /** Move the window to the start or the end of the point. */
  function edge(last) {
    const span = app.to - app.from;
    pointing.pan(0);
    model.setWindow(...(last ? [model.duration() - span, model.duration()] : [0, span]));
    model.setTime(last ? model.duration() : 0);
  }

  /** Move the cursor to the previous or the next start of a bar in the chosen lane. */
  function hop(by) {
    const read = timeline.current(),
      row = timeline.laneRows()[timeline.view.lane];
    const starts = (row && read?.bars?.[row.lane.id]?.s) || [];
    const slack = (app.to - app.from) * 1e-7;
    const at = by > 0 ? starts.find((t) => t > app.t + slack) : starts.filter((t) => t < app.t - slack).pop();
    if (at === undefined) return;
    model.showTime(at);
    tell(row);
  }

  /** Choose the lane above or below on the time line, and name what it does at the cursor. */
  function chooseLane(by) {
    const rows = timeline.laneRows(),
      { view, parts } = timeline;
    if (!rows.length) return;
    view.lane = Math.max(0, Math.min(rows.length - 1, view.lane + by));
    const row = rows[view.lane],
      top = parts.scroll.scrollTop;
    if (row.y < top) parts.scroll.scrollTop = row.y;
    if (row.y + row.height > top + view.body) parts.scroll.scrollTop = row.y + row.height - view.body;
    view.top = parts.scroll.scrollTop;
    view.focused = true;
    timeline.drawBody();
    tell(row);
  }

  /** Name what a lane does at the cursor, beside it. */
  function tell(row) {
    const { parts } = timeline,
      box = parts.body.getBoundingClientRect(),
      lines = pointing.barLines(row.lane, app.t);
    const x = Math.max(timeline.view.left, Math.min(box.width, timeline.xOf(app.t)));
    Railyard.showTip(parts, lines, box.left + x, box.top + row.y - parts.scroll.scrollTop + row.height);
    Railyard.say(lines.filter(Boolean).join(", "));
  }

  /** Whether a key is for the thing on which the keyboard is, such as a field or a button. */
  function taken(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || byId("helper").open) return true;
    const presses = e.key === " " || e.key === "Enter" ? ", button, summary, a, [role=button]" : "";
    return Boolean(e.target.closest?.(`input, select, textarea, dialog${presses}`));
  }

  /** Do what a key asks for. */
  function press(e) {
    if (taken(e) || app.view !== "run") return;
    const key = e.shiftKey && e.key.startsWith("Arrow") ? `Shift+${e.key}` : e.key;
    if (e.target === timeline.parts.all && (e.key === "ArrowUp" || e.key === "ArrowDown")) {
      chooseLane(e.key === "ArrowDown" ? 1 : -1);
    } else if (e.key === "Escape") Railyard.hideTip();
    else if (ACTS[key] && (app.point !== null || "t?".includes(key))) ACTS[key]();
    else return;
    e.preventDefault();
  }

  /** Show the keys. */
  function help() {
    const place = byId("helper");
    const row = ([keys, what]) => [h("dt", ...keys.split(" ").map((key) => h("kbd", key))), h("dd", what)];
    put(
      place,
      h("h2", "Keys"),
      h("dl.keys", KEYS.flatMap(row)),
      h(
        "p.quiet",
        "Wheel zooms at the pointer (over the lane names it scrolls; with Shift it moves the window), drag moves, " +
          "two fingers zoom, a click moves the cursor, and the drawing shows the fabric at the cursor. " +
          "All times and rates are those of the real system.",
      ),
      h("button", { autofocus: true, onclick: () => place.close() }, "Close"),
    );
    if (!place.open) place.showModal();
  }

  document.addEventListener("keydown", press);
  byId("help").addEventListener("click", help);
  timeline.parts.all.addEventListener("focus", () => {
    timeline.view.focused = timeline.parts.all.matches(":focus-visible");
    timeline.drawBody();
  });
  timeline.parts.all.addEventListener("blur", () => {
    timeline.view.focused = false;
    timeline.drawBody();
    Railyard.hideTip(timeline.parts);
  });
  on("point", () => (timeline.view.lane = 0));
})();
