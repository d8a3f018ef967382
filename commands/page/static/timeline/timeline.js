"use strict";

(function () {
  const { h, s, put, dress, byId, list, words, named, app, on, model, format, lanes, derive } = Railyard;
  const AXIS = 24,
    STEPS = 17,
    RIGHT = 12,
    LEAST_BODY = 80,
    MOST_JOBS = 4;
  /** Parts of the time line and their layout in pixels. */
  const view = {
    marks: 0,
    head: 0,
    left: 96,
    width: 800,
    from: 0,
    to: 1,
    rows: [],
    height: 0,
    body: 200,
    lane: 0,
    top: 0,
    focused: false,
  };
  const parts = {};

  /** Make the parts of the time line once. */
  function build() {
    parts.top = s("svg", { id: "tl-top", height: AXIS + STEPS, "aria-hidden": "true" });
    parts.names = s("g", { id: "tl-names" });
    parts.grid = s("path.grid");
    parts.place = s("g", { id: "tl-bars" });
    parts.hover = s("line.hover-line", { y1: 0 });
    parts.cursor = s("line.cursor-line", { y1: 0, id: "tl-cursor" });
    parts.row = s("rect.row-mark");
    const { row, grid, place, names, hover, cursor } = parts;
    parts.body = s("svg", { id: "tl-body" }, row, grid, place, names, hover, cursor);
    parts.size = h("div", { id: "tl-size" }, parts.body);
    parts.scroll = h("div", { id: "tl-scroll", tabindex: -1 }, parts.size);
    parts.empty = h("p.quiet", { id: "tl-empty", hidden: true });
    parts.all = h(
      "div",
      {
        id: "tl",
        tabindex: 0,
        role: "group",
        "aria-label":
          "Time line. Left and right arrows move the window, plus and minus zoom, up and down choose a lane.",
      },
      parts.top,
      parts.scroll,
    );
    put(byId("timeline"), parts.all, parts.empty);
    parts.bars = new Railyard.bars.Bars(parts.place);
    parts.scroll.addEventListener("scroll", () => {
      view.top = parts.scroll.scrollTop;
      requestAnimationFrame(drawBody);
    });
  }

  /** Place in pixels, from the left edge of the time line, of a time. */
  function xOf(t) {
    return view.left + ((t - app.from) / (app.to - app.from)) * view.width;
  }

  /** Time of a place in pixels from the left edge of the time line. */
  function timeOf(x) {
    return app.from + ((x - view.left) / view.width) * (app.to - app.from);
  }

  /** Measure the room, and lay out the rows. */
  function measure() {
    const room = parts.all.clientWidth || 800,
      timeline = current();
    view.left = room < 560 ? 52 : 96;
    view.width = Math.max(60, room - view.left - RIGHT);
    app.width = view.width;
    view.marks = Railyard.marks.height(view.width);
    view.head = AXIS + view.marks + Math.max(1, jobs(timeline).length) * STEPS;
    Object.assign(view, lanes.layout(timeline ? timeline.lanes : []));
    const most = Math.max(220, Math.round(window.innerHeight * 0.58));
    view.body = Math.max(Math.min(view.height, most), Math.min(LEAST_BODY, view.height));
    parts.scroll.style.height = `${view.body}px`;
    parts.size.style.height = `${view.height}px`;
    view.top = parts.scroll.scrollTop;
    dress(parts.body, { width: room, height: view.body });
    dress(parts.top, { width: room, height: view.head });
  }

  /** The time line that was read for the selected point, or null. */
  function current() {
    return model.mine(app.timeline) ? app.timeline : null;
  }

  /** Rows of the lanes from top to bottom, closed groups left out. */
  function laneRows() {
    return view.rows.filter((row) => row.kind === "lane");
  }

  /** How far the server has read the events of the point, where that is not all; else nothing. */
  function reading() {
    const share = model.loading();
    return share ? `Reading the events of this point: ${Math.floor(100 * share)} %.` : "";
  }

  /** Say why there is nothing to draw, or not all: some runs send no packets, and a report may leave points out. */
  function drawEmpty() {
    const timeline = current(),
      missing = app.source?.embedded && !app.source.holds(app.run, app.point);
    const lost = model.lost() && !timeline,
      gone = lost || (app.gone && !timeline);
    const none = app.point === null || missing || gone || (timeline && !list(timeline.lanes).length);
    byId("time-panel").hidden = app.point === null;
    parts.all.hidden = Boolean(none);
    let nothing = "No events of this point were recorded.";
    if (missing) nothing = "The time line of this point is not in this file; railyard watch shows it.";
    if (gone) nothing = "The server was gone before the events of this point were read.";
    if (lost) nothing = "The run ended without this point; its events were not kept.";
    parts.empty.textContent = reading() || (none ? nothing : "");
    parts.empty.hidden = !parts.empty.textContent;
  }

  /** Lay out and draw everything. */
  function drawAll() {
    drawEmpty();
    measure();
    draw();
  }

  /** Draw everything inside the present layout. */
  function draw() {
    drawTop();
    drawBody();
    drawCursor();
  }

  /** Draw the axis, the marks and the steps. */
  function drawTop() {
    const timeline = current() || {},
      found = format.ticks(app.from, app.to, view.width / 90);
    view.ticks = found;
    const unit = view.left > 60 ? `time (${found.unit})` : found.unit;
    const marks = found.at.map(([t, text]) => {
      const x = Math.min(xOf(t), view.left + view.width + RIGHT - text.length * 3.4);
      return s("text.tick", { x, y: 15 }, text);
    });
    const lines = s("path.ticks", { d: found.at.map(([t]) => `M${xOf(t).toFixed(1)} 19v5`).join("") });
    parts.flag = s("g.flag");
    put(
      parts.top,
      position(),
      s("text.unit", { x: view.left - 22, y: 15 }, unit),
      marks,
      lines,
      drawSteps(timeline),
      Railyard.marks.draw(xOf, AXIS, view.width / (app.to - app.from)),
      parts.flag,
    );
  }

  /** A bar above the axis that says which part of the point the window shows. */
  function position() {
    const whole = model.duration(),
      k = view.width / whole;
    return s(
      "g.position",
      s("rect", { x: view.left, y: 0, width: view.width, height: 3 }),
      s("rect.thumb", {
        x: view.left + app.from * k,
        y: 0,
        width: Math.max(3, Math.min(view.width, (app.to - app.from) * k)),
        height: 3,
      }),
    );
  }

  /** Jobs whose steps are shown, each in a row of its own. */
  function jobs(timeline) {
    return [...new Set(list(timeline && timeline.steps).map((step) => words(step.job)))].slice(0, MOST_JOBS);
  }

  /** Steps as alternating boxes with their numbers, a row for each job. */
  function drawSteps(timeline) {
    const made = [],
      of = jobs(timeline);
    const name = (job, i) => s("text.unit", { x: view.left - 6, y: AXIS + view.marks + i * STEPS + 11 }, `job ${job}`);
    if (of.length > 1) made.push(...of.map(name));
    for (const step of list(timeline.steps)) {
      const row = of.indexOf(words(step.job)),
        y = AXIS + view.marks + row * STEPS;
      if (row < 0 || !(step.e > app.from && step.s < app.to)) continue;
      const x = Math.max(view.left, xOf(step.s)),
        right = Math.min(view.left + view.width, xOf(step.e));
      const size = { width: Math.max(0.5, right - x - 1), height: STEPS - 3 },
        box = s(step.step % 2 ? "rect.step.odd" : "rect.step", { x, y, ...size });
      made.push(
        named(box, () => [
          `step ${step.step}${step.job ? ` of job ${step.job}` : ""}`,
          `from ${format.moment(step.s, app.to - app.from)}, for ${format.duration(step.e - step.s, 4)}`,
        ]),
      );
      if (right - x < 16) continue;
      const says = right - x > 64 ? `step ${step.step}` : step.step;
      made.push(s("text.step-name", { x: (x + right) / 2, y: y + 11 }, says));
    }
    return s("g", made);
  }

  /** Draw the names and the bars of the rows that can be seen. */
  function drawBody() {
    const timeline = current();
    if (!timeline) return;
    const top = view.top,
      rows = lanes.visible(view.rows, top, top + view.body);
    view.from = app.from;
    view.to = app.to;
    parts.bars.draw(timeline, rows, view, top);
    parts.grid.setAttribute("d", view.ticks.at.map(([t]) => `M${xOf(t).toFixed(1)} 0V${view.body}`).join(""));
    const named = `${top}:${view.body}:${view.width}:${view.rows.length}:${view.height}`;
    if (parts.namedFor !== named || parts.namedRows !== view.rows) {
      parts.namedFor = named;
      parts.namedRows = view.rows;
      lanes.drawNames(parts.names, rows, top, view.left, view.left + view.width);
    }
    const chosen = laneRows()[view.lane],
      focused = chosen && view.focused;
    dress(parts.row, {
      x: 0,
      y: focused ? chosen.y - top : -50,
      width: view.left + view.width,
      height: focused ? chosen.height : 0,
    });
  }

  /** Draw the cursor at the moment that is shown, with its time. */
  function drawCursor() {
    const x = xOf(app.t),
      inside = x >= view.left - 0.5 && x <= view.left + view.width + 0.5;
    dress(parts.cursor, { x1: x, x2: x, y2: inside ? view.body : 0 });
    if (!parts.flag) return;
    if (!inside) return void put(parts.flag);
    const says = format.moment(app.t, app.to - app.from),
      wide = says.length * 6.6 + 10,
      at = Math.min(Math.max(x, view.left + wide / 2), view.left + view.width - wide / 2);
    put(
      parts.flag,
      s("line", { x1: x, x2: x, y1: 20, y2: view.head }),
      s("rect", { x: at - wide / 2, y: 4, width: wide, height: 16, rx: 3 }),
      s("text", { x: at, y: 15 }, says),
    );
  }

  /** Kinds of the bars that were read, as a legend. */
  function drawLegend() {
    const timeline = current();
    if (!timeline) return;
    const kinds = derive.kindsShown(timeline),
      key = kinds.join() + Railyard.looks.dark();
    if (parts.legendOf === key) return;
    parts.legendOf = key;
    put(byId("time-legend"), Railyard.looks.legend(kinds));
  }

  /** Say which window is shown. */
  function drawWords() {
    const span = app.to - app.from,
      unit = format.momentUnit(span)[0];
    const bare = (t) => format.moment(t, span).replace(/ .*$/, "");
    const entry = model.pointEntry(),
      running = entry && entry.state === "running",
      known = running ? app.now : model.duration();
    const said = [`${bare(app.from)} to ${bare(app.to)} ${unit}${running ? "" : ` of ${format.moment(known, known)}`}`];
    if (running && known > 0) said.push(`${format.moment(known, span)} so far`);
    if (running && entry.expected_s > 0) said.push(`${format.duration(entry.expected_s)} expected`);
    byId("window-says").textContent = said.join(", ");
    const marking = model.marking();
    const title = entry ? `: ${words(entry.title)}${marking ? ` (${marking})` : ""}` : "";
    byId("time-title").textContent = `Time line${title}`;
  }

  /** Draw all again, in the colours of the theme. */
  function repaint() {
    parts.bars.clear();
    parts.legendOf = "";
    draw();
    drawLegend();
  }

  let drawnAt = 0;

  /** Draw the window; hatches are left out while it moves. */
  function drawMoved() {
    const now = performance.now();
    parts.all.classList.toggle("moving", now - drawnAt < 120);
    drawnAt = now;
    draw();
  }

  build();
  on("point", () => parts.bars.clear());
  on("point lanes marks resize", drawAll);
  on("timeline", () => {
    const timeline = current(),
      kinds = timeline ? list(timeline.kinds).join() : "";
    if (parts.kinds !== kinds) parts.bars.clear();
    parts.kinds = kinds;
    drawAll();
    drawLegend();
  });
  on("window", drawMoved);
  on("settled", () => parts.all.classList.remove("moving"));
  on("window duration overview", drawWords);
  on("overview", drawEmpty);
  on("time", drawCursor);
  on("theme", repaint);

  Railyard.timeline = { view, parts, xOf, timeOf, current, laneRows, reading, drawBody };
})();
