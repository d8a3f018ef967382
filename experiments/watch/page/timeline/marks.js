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
  const LINES = "xXP";

  /** The marker of a kind of mark at a place. */
  function sign(kind, x, y, given) {
    const marker = Railyard.looks.look(kind).marker,
      colour = Railyard.looks.colour(kind),
      line = marker && LINES.includes(marker);
    return s(
      "g",
      { transform: `translate(${x.toFixed(1)} ${y})`, ...given },
      s("rect", { x: -HALF - 2, y: -HALF - 3, width: 2 * HALF + 4, height: 2 * HALF + 6, class: "catch-all" }),
      s("path", {
        d: SHAPES[marker] || SHAPES.D,
        class: line ? "mark line" : "mark",
        [line ? "stroke" : "fill"]: colour,
      }),
    );
  }

  /** Marks of the window above the steps. */
  function draw(xOf, y) {
    return s(
      "g",
      {},
      app.marks.map((mark, i) => {
        if (!(mark.t >= app.from && mark.t <= app.to)) return null;
        return named(sign(mark.kind, xOf(mark.t), y, { "data-mark": i, class: mark.manual ? "manual" : "" }), () =>
          lines(mark),
        );
      }),
    );
  }

  /** Name of a kind of mark. */
  function name(mark) {
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
    return s(
      "svg",
      { class: "chip", width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true" },
      sign(kind, 0, 0, {}),
    );
  }

  Railyard.marks = { draw, name, lines, chip };
})();
