"use strict";

(function () {
  const { s, words, named, app, format } = Railyard;
  const HALF = 5;
  /** Outlines of the markers of figures, around the origin. */
  const SHAPES = {
    x: "M-4 -4L4 4M-4 4L4 -4",
    X: "M-4 -4L4 4M-4 4L4 -4",
    P: "M-4.5 0H4.5M0 -4.5V4.5",
    o: "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0 -4 0Z",
    s: "M-3.8 -3.8H3.8V3.8H-3.8Z",
    D: "M0 -5L5 0L0 5L-5 0Z",
    d: "M0 -5L3.4 0L0 5L-3.4 0Z",
    "^": "M0 -4.6L4.8 4H-4.8Z",
    v: "M0 4.6L4.8 -4H-4.8Z",
    ">": "M4.6 0L-4 4.8V-4.8Z",
    "<": "M-4.6 0L4 4.8V-4.8Z",
    "*": "M0 -5.4L1.3 -1.7L5.2 -1.7L2.1 0.7L3.2 4.4L0 2.2L-3.2 4.4L-2.1 0.7L-5.2 -1.7L-1.3 -1.7Z",
  };
  const LINES = "xXP",
    APART_PX = 11,
    MOST_ROWS = 3,
    ROW_PX = 13,
    FIRST = ["fault", "failed"];

  /** The marker of a kind of mark at a place; one made of lines has a casing, so that it stands out on bars too. */
  function sign(kind, x, y, given) {
    const marker = Railyard.looks.look(kind).marker,
      colour = Railyard.looks.line(kind),
      line = marker && LINES.includes(marker),
      path = s("path", { d: SHAPES[marker] || SHAPES.D, class: line ? "mark line" : "mark", fill: colour });
    if (line) path.style.setProperty("--sign", colour);
    return s(
      "g",
      { transform: `translate(${x.toFixed(1)} ${y})`, ...given },
      s("rect.catch-all", { x: -HALF - 2, y: -HALF - 3, width: 2 * HALF + 4, height: 2 * HALF + 6 }),
      line && s("path.mark-casing", { d: SHAPES[marker] }),
      path,
    );
  }

  /** The row of each mark from `from` on, so that none hides another where there is room; `scale`: pixels a second. */
  function places(from, to, scale) {
    const last = [],
      found = new Map();
    app.marks.forEach((mark, i) => {
      if (!(mark.t >= from && mark.t <= to)) return;
      const x = mark.t * scale;
      let row = 0;
      while (row < MOST_ROWS - 1 && x - (last[row] ?? -Infinity) < APART_PX) row += 1;
      last[row] = x;
      found.set(i, row);
    });
    return found;
  }

  /** Height of the marks of a point in pixels: none needs more rows than the point, or a window longer than it. */
  function height(width) {
    if (!app.marks.length) return 3;
    const whole = Math.max(Railyard.model.duration(), app.to - app.from);
    return 5 + ROW_PX * (1 + Math.max(0, ...places(-Infinity, Infinity, width / whole).values()));
  }

  /** Marks of the window above the steps, from `top` on; failures are drawn last, above what was done about them. */
  function draw(xOf, top, scale) {
    const rows = [...places(app.from, app.to, scale)],
      first = ([i]) => FIRST.includes(app.marks[i].kind);
    return s(
      "g",
      [...rows.filter((each) => !first(each)), ...rows.filter(first)].map(([i, row]) => {
        const mark = app.marks[i],
          given = { "data-mark": i, class: mark.manual ? "manual" : "" };
        return named(sign(mark.kind, xOf(mark.t), top + 9 + row * ROW_PX, given), () => lines(mark));
      }),
    );
  }

  /** Name of a kind of mark; that of a port says whether it failed or was repaired. */
  function name(mark) {
    if (mark.kind === "port" && / works again$/.test(mark.says)) return "port repaired";
    if (mark.kind === "port" && / failed$/.test(mark.says)) return "port failed";
    return Railyard.looks.look(mark.kind).name || words(mark.kind);
  }

  /** Lines that tell what a mark is about. */
  function lines(mark) {
    return [
      name(mark),
      words(mark.says),
      mark.manual && mark.kind !== "manual" ? "done by a person" : "",
      `at ${format.moment(mark.t, app.to - app.from)}`,
      mark.end > mark.t ? `for ${format.duration(mark.end - mark.t)}` : "",
    ];
  }

  /** A small marker, for lists. */
  function chip(kind) {
    return Railyard.looks.sample(14, 14, sign(kind, 7, 7, {}));
  }

  Railyard.marks = { draw, height, name, chip };
})();
