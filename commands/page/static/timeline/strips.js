"use strict";

(function () {
  const { h, s, put, byId, there, list, words, app, on, model, format, timeline } = Railyard;
  const TALL = 84,
    AXIS_TALL = 20,
    LEAST_GAP_S = 1e-9;
  let charts = [],
    builtFor = "";

  /** A colour of the theme, as the canvas needs it. */
  function ink(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  /** Colour and dashes of the series number `i` of a chart. */
  function pen(i) {
    return { stroke: ink(`--series-${(i % 6) + 1}`), dash: i < 6 ? [] : [5, 3] };
  }

  /** Values of steps as lines from start to end of each step, with gaps between steps. */
  function stepLines(steps, keys) {
    const x = [],
      columns = keys.map(() => []);
    let last = -Infinity;
    for (const step of steps) {
      const start = Math.max(last + LEAST_GAP_S, step.s),
        end = Math.max(start, step.e),
        after = end + (end - start) * 1e-4;
      last = after;
      x.push(start, end, after);
      keys.forEach((value, i) => {
        const shown = Number.isFinite(value(step)) ? value(step) : null;
        columns[i].push(shown, shown, null);
      });
    }
    return [x, ...columns];
  }

  /** Of how many ports the rates of a line are the sum, and the line rate of that many. */
  function sumOf(rate) {
    if (!(rate.ports > 1)) return "";
    const alike = typeof rate.port_gbps === "number";
    const line = alike ? `${rate.ports} × ${format.rate(rate.port_gbps)}` : `${format.rate(rate.line_gbps)} together`;
    return `sum of ${rate.ports} ports, line rate ${line}`;
  }

  /** The chart of link rates, one line for each rail, and its line rate. */
  function ratesChart(read) {
    const rates = list(read.rates);
    if (!rates.length || !list(read.t).length) return null;
    const sums = [...new Set(rates.map(sumOf))],
      same = sums.length === 1;
    const lines = [...new Set(rates.map((each) => each.line_gbps).filter((value) => value > 0))];
    return {
      id: "rates",
      title: "Link rate",
      unit: same && sums[0] ? `Gb/s: ${sums[0]}` : "Gb/s",
      zero: true,
      levels: lines,
      series: rates.map((each, i) => ({ name: words(each.name) + (same ? "" : ` (${sumOf(each)})`), ...pen(i) })),
      data: [read.t, ...rates.map((each) => list(each.values))],
      says: (value) => format.rate(value),
    };
  }

  /** Lines of all jobs on one axis: `kinds` makes the columns of a job's steps, with their series. */
  function jobLines(steps, kinds) {
    const jobs = [...new Set(steps.map((step) => words(step.job)))],
      series = [],
      tables = [];
    jobs.forEach((job, i) => {
      const mine = steps.filter((step) => words(step.job) === job),
        columns = kinds(i),
        values = columns.map((column) => column.value);
      tables.push(stepLines(mine, values));
      columns.forEach(({ name, stroke, dash }) =>
        series.push({ name: jobs.length > 1 ? `${name} (job ${job})` : name, stroke, dash }),
      );
    });
    const keepGaps = tables.map((table) => table.map(() => 2)),
      data = tables.length > 1 ? window.uPlot.join(tables, keepGaps) : tables[0];
    series.forEach((each, i) => (each.there = data[i + 1].some(there)));
    return { data, series };
  }

  /** The charts of step times and of stalls, where they are known. */
  function stepCharts(read) {
    const lasting = list(read.steps).filter((step) => step.e > step.s),
      steps = lasting.sort((a, b) => a.s - b.s),
      any = (key) => steps.some((step) => typeof step[key] === "number");
    const jobs = new Set(steps.map((step) => words(step.job))).size,
      stroke = (i, alone) => (jobs > 1 ? pen(i * 2).stroke : ink(alone));
    const times = (i) => [
      { name: "measured", stroke: pen(i * 2).stroke, value: (step) => (step.warmup ? null : step.seconds) },
      { name: "warm-up, not counted", stroke: ink("--muted"), value: (step) => (step.warmup ? step.seconds : null) },
      { name: "predicted", stroke: stroke(i, "--series-2"), dash: [6, 4], value: (step) => step.predicted_s },
    ];
    const stalls = (i) => [{ name: "stall", stroke: stroke(i, "--series-5"), value: (step) => step.stall_s }];
    return [
      any("seconds") && {
        id: "steps",
        title: "Step time",
        unit: "s",
        width: 2.5,
        says: (value) => format.duration(value, 4),
        step: true,
        ...jobLines(steps, times),
      },
      any("stall_s") && {
        id: "stalls",
        title: "Wait for circuits in a step",
        unit: "s",
        zero: true,
        width: 2,
        says: (value) => format.duration(value, 3),
        step: true,
        fill: true,
        ...jobLines(steps, stalls),
      },
    ];
  }

  /** Lowest and highest value of a vertical axis. */
  function range(chart, low, high) {
    if (low === null || high === null || !isFinite(low) || !isFinite(high)) return [0, 1];
    const top = Math.max(high, ...(chart.levels || []));
    if (chart.zero) return [0, top > 0 ? top * 1.06 : 1];
    const room = Math.max((high - low) * 0.25, Math.abs(high) * 0.01, 1e-9);
    return [Math.max(0, low - room), high + room];
  }

  /** Draw a line across a chart at each level, such as the line rate. */
  function drawLevels(u, chart) {
    const { ctx, bbox } = u,
      ratio = window.devicePixelRatio || 1;
    ctx.save();
    ctx.strokeStyle = ink("--muted");
    ctx.lineWidth = ratio;
    ctx.setLineDash([2 * ratio, 3 * ratio]);
    for (const level of chart.levels || []) {
      const y = Math.round(u.valToPos(level, "y", true));
      ctx.beginPath();
      ctx.moveTo(bbox.left, y);
      ctx.lineTo(bbox.left + bbox.width, y);
      ctx.stroke();
    }
    ctx.restore();
  }

  /** Options of uPlot for a chart on the axis of the time line. */
  function options(chart, last) {
    const { view } = timeline,
      axis = {
        grid: { stroke: ink("--grid"), width: 1 },
        ticks: { show: false },
        font: `11px ${getComputedStyle(document.body).fontFamily}`,
        stroke: ink("--muted"),
      };
    return {
      width: view.left + view.width + 12,
      height: TALL + (last ? AXIS_TALL : 6),
      padding: [6, 12, last ? 0 : 6, 0],
      legend: { show: false },
      cursor: { show: false },
      select: { show: false },
      scales: {
        x: { time: false, auto: false, range: () => [app.from, app.to] },
        y: { range: (u, low, high) => range(chart, low, high) },
      },
      axes: [
        {
          ...axis,
          size: last ? AXIS_TALL : 0,
          gap: 3,
          splits: () => view.ticks.at.map(([t]) => t),
          values: () => view.ticks.at.map(([, text]) => (last ? text : "")),
        },
        {
          ...axis,
          size: view.left,
          gap: 6,
          space: 24,
          values: (u, at) =>
            at.map((value) =>
              value === null
                ? ""
                : format
                    .number(value, 3)
                    .replace(/(\.\d*?)0+$/, "$1")
                    .replace(/\.$/, ""),
            ),
        },
      ],
      series: [
        {},
        ...chart.series.map((each) => ({
          stroke: each.stroke,
          width: chart.width || 1.4,
          dash: each.dash,
          points: { show: false },
          spanGaps: false,
          fill: chart.fill ? `${each.stroke}33` : undefined,
        })),
      ],
      hooks: { draw: [(u) => drawLevels(u, chart)] },
    };
  }

  /** The title of a chart, with the names of its lines. */
  function caption(chart) {
    const key = ({ stroke, dash, name }) => {
      const dashes = list(dash).join(" ") || null;
      const line = s("path", { d: "M0 5H18", stroke, "stroke-width": 2.5, "stroke-dasharray": dashes });
      return Railyard.looks.key(18, 10, line, name);
    };
    const shown = chart.series.filter((each) => each.there !== false),
      rates = [...new Set(list(chart.levels).map(format.rate))].join(", "),
      level = rates && key({ stroke: ink("--muted"), dash: [2, 3], name: `line rate ${rates}` });
    return h(
      "div.strip-head",
      h("h3", `${chart.title}, ${chart.unit}`),
      shown.length > 1 || level ? shown.map(key) : null,
      level,
    );
  }

  /** Lines that name the values of a chart at a time. */
  function lines(chart, t) {
    const x = chart.data[0];
    let i = Railyard.derive.after(x, t);
    if (chart.step) while (i > 0 && x[i] > t) i -= 1;
    else if (i > 0 && (i === x.length || t - x[i - 1] < x[i] - t)) i -= 1;
    const values = chart.series.map((each, k) => {
      let at = i;
      while (chart.step && at > 0 && chart.data[k + 1][at] === undefined) at -= 1;
      const value = chart.data[k + 1][at];
      return there(value) ? `${each.name}: ${chart.says(value)}` : "";
    });
    return [`${chart.title} at ${format.moment(t, app.to - app.from)}`, ...values];
  }

  /** Make one chart with its caption. */
  function mount(chart, last) {
    const place = h("div.strip", { "data-strip": chart.id });
    const u = new window.uPlot(options(chart, last), chart.data, place);
    const mark = h("div.strip-cursor");
    u.over.append(mark);
    const timeAt = (e) =>
      app.from + ((e.clientX - u.over.getBoundingClientRect().left) / u.over.clientWidth) * (app.to - app.from);
    u.over.addEventListener("pointermove", (e) => Railyard.showTip(u, lines(chart, timeAt(e)), e.clientX, e.clientY));
    u.over.addEventListener("pointerleave", () => Railyard.hideTip(u));
    u.over.addEventListener("click", (e) => {
      Railyard.pointing.setFollow(false);
      model.setTime(timeAt(e));
    });
    charts.push({ u, mark, chart });
    return [caption(chart), place];
  }

  /** Draw the strip charts; they are made again only where other lines are to be shown. */
  function draw() {
    const read = model.mine(app.strips) ? app.strips : null,
      { view } = timeline;
    const made = read && view.ticks ? [ratesChart(read), ...stepCharts(read)].filter(Boolean) : [];
    const charted = made.map((each) => [each.id, each.levels, each.series]),
      shape = JSON.stringify([charted, view.left, view.width, app.point, app.run]);
    byId("strips").hidden = !made.length;
    if (shape !== builtFor) {
      charts.forEach(({ u }) => u.destroy());
      charts = [];
      put(byId("strips"), ...made.map((chart, i) => mount(chart, i === made.length - 1)));
      builtFor = shape;
    } else
      made.forEach((chart, i) => {
        charts[i].chart = Object.assign(charts[i].chart, chart);
        charts[i].u.setData(chart.data);
      });
    drawCursor();
  }

  /** Show the window of the time line. */
  function move() {
    charts.forEach(({ u }) => u.setScale("x", { min: app.from, max: app.to }));
    drawCursor();
  }

  /** Mark the moment that is shown. */
  function drawCursor() {
    const share = (app.t - app.from) / (app.to - app.from);
    charts.forEach(({ mark }) => {
      mark.hidden = !(share >= 0 && share <= 1);
      mark.style.left = `${share * 100}%`;
    });
  }

  on("strips point lanes resize", draw);
  on("theme", () => {
    builtFor = "";
    draw();
  });
  on("window", move);
  on("time", drawCursor);
})();
