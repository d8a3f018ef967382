"use strict";

(function () {
  const { s, record } = Railyard;
  const SIZE = 6;
  const LINES = {
    "/": `M-1 ${SIZE + 1}L${SIZE + 1} -1M-1 1L1 -1M${SIZE - 1} ${SIZE + 1}L${SIZE + 1} ${SIZE - 1}`,
    "\\": `M-1 -1L${SIZE + 1} ${SIZE + 1}M${SIZE - 1} -1L${SIZE + 1} 1M-1 ${SIZE - 1}L1 ${SIZE + 1}`,
    "|": `M1.5 0V${SIZE}M4.5 0V${SIZE}`,
    "-": `M0 1.5H${SIZE}M0 4.5H${SIZE}`,
    x: `M0 0L${SIZE} ${SIZE}M0 ${SIZE}L${SIZE} 0`,
    ".": "M1 1.5h1.4M4 4.5h1.4",
  };
  const FALLBACK = { name: "", colour: "#8C8C8C", hatch: "" };

  /** Whether the page is drawn on a dark background. */
  function dark() {
    return document.documentElement.dataset.theme === "dark";
  }

  /** Name, colour and hatch of a kind of thing, as in the figures; grey for one that nobody named. */
  function look(kind) {
    const looks = record(record(Railyard.app.overview).looks);
    return { ...FALLBACK, ...(looks[kind] || { ...looks.other, name: String(kind) }) };
  }

  /** Red, green and blue of a colour such as #D55E00. */
  function parts(colour) {
    const found = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i.exec(colour) || [0, "8C", "8C", "8C"];
    return found.slice(1).map((pair) => parseInt(pair, 16));
  }

  /** The colour of a kind on the present ground, as #RRGGBB. */
  function ground(kind) {
    const drawn = look(kind);
    return (dark() && drawn.colour_dark) || drawn.colour;
  }

  /** The colour mixed with the background: `share` of it is left. */
  function tint(colour, share) {
    const behind = dark() ? [20, 23, 28] : [255, 255, 255],
      mixed = parts(colour).map((c, i) => Math.round(c * share + behind[i] * (1 - share)));
    return `rgb(${mixed.join(",")})`;
  }

  /** Colour of lines and bars of a kind. */
  function colour(kind) {
    return `rgb(${parts(ground(kind)).join(",")})`;
  }

  /** Colour of marks of a kind, which stand out against the ground. */
  function line(kind) {
    const drawn = look(kind);
    return `rgb(${parts((dark() ? drawn.line_dark : drawn.line) || ground(kind)).join(",")})`;
  }

  /** Fill of bars and chips of a kind: its colour, or the pattern of its hatch. */
  function fill(kind) {
    return hatch(kind) ? `url(#hatch-${id(kind)})` : colour(kind);
  }

  /** The hatch of a kind; what is dark is always hatched, so that black is not taken for a colour of data. */
  function hatch(kind) {
    return look(kind).hatch || (kind === "dark" ? "////" : "");
  }

  /** Whether a kind is drawn in a colour so near to the ground that it needs an outline. */
  function pale(kind) {
    const level = (c) => (0.3 * c[0] + 0.59 * c[1] + 0.11 * c[2]) / 255,
      behind = dark() ? 0.09 : 1;
    return !hatch(kind) && Math.abs(level(parts(ground(kind))) - behind) < 0.09;
  }

  /** The colour of a hatched kind while the window moves, as patterns are slow to draw; null without hatch. */
  function flat(kind) {
    return hatch(kind) ? tint(ground(kind), 0.55) : null;
  }

  /** A name that an id may hold. */
  function id(kind) {
    return String(kind).replace(/[^a-z0-9]/gi, "_");
  }

  /** The pattern of a kind with a hatch. */
  function pattern(kind) {
    const sign = hatch(kind)[0],
      ink = colour(kind),
      pale = tint(ground(kind), 0.24);
    return s(
      "pattern",
      { id: `hatch-${id(kind)}`, width: SIZE, height: SIZE, patternUnits: "userSpaceOnUse" },
      s("rect", { width: SIZE, height: SIZE, fill: pale }),
      s("path", { d: LINES[sign] || LINES["/"], stroke: ink, "stroke-width": sign === "." ? 1.6 : 1.5, fill: "none" }),
    );
  }

  /** Make the patterns of all kinds again, for these looks and this theme. */
  function refresh() {
    const kinds = Object.keys(record(record(Railyard.app.overview).looks));
    Railyard.put(Railyard.byId("patterns"), kinds.filter(hatch).map(pattern));
  }

  /** A small drawing in a text. */
  function sample(width, height, ...drawn) {
    return s("svg.chip", { width, height, "aria-hidden": "true" }, drawn);
  }

  /** An entry of a legend: a sample of so many pixels, and what it means. */
  function key(width, height, drawn, text) {
    return Railyard.h("span.key", sample(width, height, drawn), text);
  }

  /** A legend of kinds, in the order given. */
  function legend(kinds) {
    const box = (kind) => s("rect.chip-box", { x: 0.5, y: 0.5, width: 15, height: 10, rx: 1.5, fill: fill(kind) });
    return kinds.map((kind) => key(16, 11, box(kind), look(kind).name || kind));
  }

  Railyard.looks = { look, colour, line, fill, flat, pale, refresh, sample, key, legend, dark };
})();
