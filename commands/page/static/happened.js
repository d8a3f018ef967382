"use strict";

(function () {
  const { h, put, byId, list, record, words, app, on, model, format, timeline } = Railyard;
  const MOST = 200,
    EAGER = 20;

  /** Show the moment of a mark: the cursor goes there, and the window where it must. */
  function show(mark) {
    const span = app.to - app.from;
    Railyard.pointing.setFollow(false);
    if (mark.t < app.from || mark.t > app.to) model.setWindow(mark.t - span / 2, mark.t + span / 2);
    model.setTime(mark.t);
  }

  /** One mark in the list: when, what, and who did it. */
  function entry(mark) {
    const kind = Railyard.marks.name(mark);
    return h(
      "li",
      {},
      h(
        "button",
        { class: "mark-row", on: { click: () => show(mark) } },
        h("span", { class: "when", text: format.moment(mark.t, model.duration() / 10) }),
        h(
          "span",
          { class: mark.manual ? "tag person" : "tag" },
          Railyard.marks.chip(mark.kind),
          mark.manual ? "by a person" : kind,
        ),
        h("span", { class: "says", text: words(mark.says) }),
      ),
    );
  }

  let listed = "";

  /** Failures and other marks of the selected point, and what was done about them. */
  function drawMarks() {
    const place = byId("happened"),
      marks = app.marks;
    place.hidden = app.point === null;
    const there = Boolean(timeline.current()),
      nothing = there && !model.loading() ? "Nothing failed, and nobody acted by hand." : timeline.reading();
    const now = JSON.stringify([app.run, app.point, nothing, marks, format.momentUnit(0)[0]]);
    if (now === listed) return;
    listed = now;
    const old = place.querySelector("ol"),
      kept = old ? old.scrollTop : 0;
    put(
      place,
      h("h2", { text: "What happened" }),
      marks.length
        ? h("ol", { class: "marks" }, marks.slice(0, MOST).map(entry))
        : h("p", { class: "quiet", text: nothing }),
      marks.length > MOST ? h("p", { class: "quiet", text: `and ${marks.length - MOST} more` }) : null,
    );
    if (kept && marks.length) place.querySelector("ol").scrollTop = kept;
  }

  /** Findings of the run and the calibrations that hold for it. */
  function drawFindings() {
    const found = list(app.overview.findings),
      calibrated = list(app.overview.calibrated),
      place = byId("findings");
    place.hidden = !found.length && !calibrated.length;
    put(
      place,
      h("h2", { text: "Findings" }),
      h(
        "ul",
        {},
        found.map((each) => h("li", { text: words(each) })),
      ),
      calibrated.length
        ? h(
            "ul",
            { class: "quiet" },
            calibrated.map((each) => h("li", { text: words(each) })),
          )
        : null,
    );
  }

  /** The name of a figure's file in words: modes keep their hyphen, and numbers stand apart from their units. */
  function caption(name) {
    const spaced = name
      .replace(/-/g, " ")
      .replace(/\b(on|one|rail|multi|two) (demand|shot|optimized|hop|sided)\b/g, "$1-$2")
      .replace(/(\d)(ms|us|ns|s)\b/g, "$1 $2");
    return spaced.charAt(0).toUpperCase() + spaced.slice(1);
  }

  /** The figures of the run; each opens in full size. */
  function drawFigures() {
    const place = byId("figures"),
      all = list(app.overview.figures),
      made = [];
    for (const figure of all) {
      const from = app.source.figure(app.run, record(figure));
      if (!from) continue;
      const name = caption(words(figure.name || figure.file));
      const image = h("img", { src: from, alt: `Figure: ${name}`, loading: all.length > EAGER ? "lazy" : null });
      made.push(
        h(
          "figure",
          {},
          h(
            "button",
            { class: "plain", "aria-label": `Figure ${name} in full size`, on: { click: () => enlarge(name, from) } },
            image,
          ),
          h("figcaption", { text: name }),
        ),
      );
    }
    place.hidden = !made.length;
    put(place, h("h2", { text: "Figures" }), h("div", { class: "gallery" }, made));
  }

  /** Show a figure in full size, from its top on. */
  function enlarge(name, from) {
    const place = byId("helper");
    put(
      place,
      h(
        "div",
        { class: "figure-head" },
        h("h2", { text: name }),
        h("button", { text: "Close", autofocus: true, on: { click: () => place.close() } }),
      ),
      h("img", { src: from, alt: `Figure: ${name}`, class: "full" }),
    );
    place.showModal();
    place.scrollTop = 0;
  }

  /** A fact as words: parts of a record with their names. */
  function inWords(value) {
    if (value === null || value === undefined || value === "") return "";
    if (Array.isArray(value)) return value.map(inWords).filter(Boolean).join(", ");
    if (typeof value !== "object") return String(value);
    return Object.entries(value)
      .map(([key, each]) => `${key.replace(/_/g, " ")} ${inWords(each)}`)
      .join(", ");
  }

  /** Facts of the manifest: how the run was started, when, with what, on what. */
  function drawFacts() {
    const seen = app.overview,
      scale = record(seen.scale);
    const command = words(seen.command);
    const rows = [
      ["command", command ? h("code", { text: command }) : ""],
      ["written", words(seen.written)],
      ["ended", words(seen.ended)],
      ["seed", words(seen.seed)],
      ["scale", words(scale.says)],
      ["versions", inWords(seen.versions)],
      ["machine", inWords(seen.machine)],
    ].filter(([, value]) => value);
    byId("facts").hidden = !rows.length;
    put(
      byId("facts"),
      h("h2", { text: "This run" }),
      h(
        "dl",
        { class: "facts" },
        rows.map(([name, value]) => [h("dt", { text: name }), h("dd", {}, value)]),
      ),
    );
  }

  on("timeline", drawMarks);
  on("point", drawMarks);
  on("marks", drawMarks);
  on("overview", drawFindings);
  on("overview", drawFacts);
  let figuresOf = "";
  on("overview", () => {
    const names = JSON.stringify([app.run, list(app.overview.figures), app.overview.state]);
    if (names !== figuresOf) drawFigures();
    figuresOf = names;
  });
})();
