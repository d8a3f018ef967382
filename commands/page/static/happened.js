"use strict";

(function () {
  const { h, put, byId, there, list, record, words, app, on, model, format, timeline } = Railyard;
  const MOST = 200,
    EAGER = 20;

  /** Show the moment of a mark. */
  function show(mark) {
    Railyard.pointing.setFollow(false);
    model.showTime(mark.t);
  }

  /** One mark in the list: when, what, and who did it. */
  function entry(mark) {
    const { chip, name } = Railyard.marks,
      who = mark.manual ? "by a person" : name(mark);
    const row = h(
      "button.mark-row",
      { onclick: () => show(mark) },
      h("span.when", format.moment(mark.t, model.duration() / 10)),
      h(mark.manual ? "span.tag.person" : "span.tag", chip(mark.kind), who),
      h("span.says", words(mark.says)),
    );
    return h("li", row);
  }

  let listed = "";

  /** Failures and other marks of the selected point, and what was done about them. */
  function drawMarks() {
    const place = byId("happened"),
      marks = app.marks;
    place.hidden = app.point === null;
    const all = timeline.current() && !model.loading(),
      nothing = all ? "Nothing failed, and nobody acted by hand." : timeline.reading();
    const now = JSON.stringify([app.run, app.point, nothing, marks, format.momentUnit(0)[0]]);
    if (now === listed) return;
    listed = now;
    const kept = place.querySelector("ol")?.scrollTop;
    put(
      place,
      h("h2", "What happened"),
      marks.length ? h("ol.marks", marks.slice(0, MOST).map(entry)) : h("p.quiet", nothing),
      marks.length > MOST && h("p.quiet", `and ${marks.length - MOST} more`),
    );
    if (kept && marks.length) place.querySelector("ol").scrollTop = kept;
  }

  /** Findings of the run and the calibrations that hold for it. */
  function drawFindings() {
    const found = list(app.overview.findings),
      calibrated = list(app.overview.calibrated),
      place = byId("findings");
    place.hidden = !found.length && !calibrated.length;
    const items = (kind, texts) => h(kind, ...texts.map((each) => h("li", words(each))));
    put(place, h("h2", "Findings"), items("ul", found), calibrated.length > 0 && items("ul.quiet", calibrated));
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
      const image = h("img", { src: from, alt: `Figure: ${name}`, loading: all.length > EAGER ? "lazy" : null }),
        given = { "aria-label": `Figure ${name} in full size`, onclick: () => enlarge(name, from) };
      made.push(h("figure", h("button.plain", given, image), h("figcaption", name)));
    }
    place.hidden = !made.length;
    put(place, h("h2", "Figures"), h("div.gallery", made));
  }

  /** Show a figure in full size, from its top on. */
  function enlarge(name, from) {
    const place = byId("helper");
    put(
      place,
      h("div.figure-head", h("h2", name), h("button", { autofocus: true, onclick: () => place.close() }, "Close")),
      h("img.full", { src: from, alt: `Figure: ${name}` }),
    );
    place.showModal();
    place.scrollTop = 0;
  }

  /** A fact as words: parts of a record with their names. */
  function inWords(value) {
    if (!there(value)) return "";
    if (Array.isArray(value)) return value.map(inWords).filter(Boolean).join(", ");
    if (typeof value !== "object") return String(value);
    return Object.entries(value)
      .map(([key, each]) => `${key.replace(/_/g, " ")} ${inWords(each)}`)
      .join(", ");
  }

  /** Facts of the manifest: how the run was started, when, with what, on what. */
  function drawFacts() {
    const seen = app.overview,
      command = words(seen.command);
    const rows = [
      ["command", command ? h("code", command) : ""],
      ["written", words(seen.written)],
      ["ended", words(seen.ended)],
      ["seed", words(seen.seed)],
      ["scale", words(record(seen.scale).says)],
      ["versions", inWords(seen.versions)],
      ["machine", inWords(seen.machine)],
    ].filter(([, value]) => value);
    byId("facts").hidden = !rows.length;
    const facts = rows.flatMap(([name, value]) => [h("dt", name), h("dd", value)]);
    put(byId("facts"), h("h2", "This run"), h("dl.facts", facts));
  }

  on("timeline point marks", drawMarks);
  on("overview", drawFindings);
  on("overview", drawFacts);
  let figuresOf = "";
  on("overview", () => {
    const names = JSON.stringify([app.run, list(app.overview.figures), app.overview.state]);
    if (names !== figuresOf) drawFigures();
    figuresOf = names;
  });
})();
