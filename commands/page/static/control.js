"use strict";

(function () {
  const { h, put, keepFocus, byId, there, list, record, words, app, on, model, fabric } = Railyard;
  const ACTS = {
    rewire: ["Rewire: a circuit between two ports", ["switch", "port", "other"]],
    fail: ["Fail a port", ["switch", "port"]],
    restore: ["Restore a failed port", ["switch", "port"]],
    "fail-chip": ["Report a chip as failed", ["rank"]],
  };
  const chosen = { act: "rewire", switch: "", port: "", other: "", rank: "" };
  let asked = false,
    said = "",
    good = false,
    shownFor = "",
    known = -Infinity,
    broken = {},
    dead = [];

  /** Keep which ports and chips have failed by now, and offer the others; `state` may be older than what is known. */
  function learn(state) {
    const found = record(state),
      failed = Object.entries(record(found.failed)).filter(([, ports]) => list(ports).length),
      now = [Object.fromEntries(failed), list(found.dead)];
    if (!(found.t >= known)) return;
    known = found.t;
    if (JSON.stringify(now) === JSON.stringify([broken, dead])) return;
    [broken, dead] = now;
    if (!asked) draw();
  }

  /** Ask what has failed by now, wherever the cursor is; without an answer, what was known stays. */
  const looking = new model.OneInFlight(async () => {
    const { run, point, now } = app;
    const state = await app.source.state(run, point, now).catch(() => null);
    if (run === app.run && point === app.point) learn(state);
  });

  /** Optical switches of the drawing, by their ports. */
  function switches() {
    const data = fabric.shown.data || {},
      optical = list(data.nodes).filter((each) => each.kind === "ocs"),
      names = optical.map((each) => each.id);
    return Railyard.grouped(
      list(data.ports).filter((port) => !names.length || names.includes(port.switch)),
      (port) => port.switch,
    );
  }

  /** A choice among values with their names. */
  function choice(label, key, values) {
    if (!values.some(([value]) => String(value) === String(chosen[key])))
      chosen[key] = values.length ? String(values[0][0]) : "";
    const options = values.map(([value, name]) =>
      h("option", { value, selected: String(value) === String(chosen[key]) }, name),
    );
    const choose = (e) => {
      chosen[key] = e.target.value;
      asked = false;
      draw();
      looking.ask();
    };
    return h("label", h("span", label), h("select", { "data-choice": key, onchange: choose }, options));
  }

  /** Ports of the chosen switch with their ranks, without `except`: failed ones to restore, else those that work. */
  function portNames(found, except) {
    const failed = list(broken[chosen.switch]);
    return list(found.get(chosen.switch))
      .filter((port) => String(port.number) !== except)
      .filter((port) => failed.includes(port.number) === (chosen.act === "restore"))
      .map((port) => [port.number, `${port.number}${there(port.rank) ? ` (rank ${port.rank})` : ""}`]);
  }

  /** The choices that an act needs. */
  function choices(needs) {
    const found = switches(),
      names = [...found.keys()].map((name) => [name, words(name)]);
    const ranks = [...fabric.shown.gpus.keys()]
      .filter((rank) => !dead.includes(rank))
      .sort((a, b) => a - b)
      .map((rank) => [rank, `rank ${rank}`]);
    const made = {
      switch: () => choice("Switch", "switch", names),
      port: () => choice("Port", "port", portNames(found)),
      other: () => choice("and port", "other", portNames(found, chosen.port)),
      rank: () => choice("Chip", "rank", ranks),
    };
    return needs.map((key) => made[key]());
  }

  /** What is asked of the server. */
  function request() {
    const made = { act: chosen.act };
    if (chosen.act === "fail-chip") return { ...made, rank: Number(chosen.rank) };
    made.switch = chosen.switch;
    if (chosen.act === "rewire") return { ...made, circuits: [[Number(chosen.port), Number(chosen.other)]] };
    return { ...made, port: Number(chosen.port) };
  }

  /** The act as a question that says what follows from it. */
  function question() {
    const { rank, port, other, switch: at } = chosen;
    return {
      rewire:
        `Connect ports ${port} and ${other} of ${at}? Circuits that they have now are taken down; while a group ` +
        "sends on one of these, it is refused. A job takes its ports back when it next asks for them.",
      fail:
        `Fail port ${port} of ${at}? Its circuit is taken down. A job that uses it ends, and its run with it, ` +
        "unless it has spares.",
      restore: `Restore port ${port} of ${at}? The circuit that it lost returns if both of its ports are free.`,
      "fail-chip":
        `Report the chip of rank ${rank} as failed? Its links and its agent go on, but a job that uses it restarts ` +
        "with a spare in its place; without spares the job ends, and its run with it. A chip of no job keeps its " +
        "circuits and is no spare any more.",
    }[chosen.act];
  }

  /** Why there is nothing to choose for the act, or "". */
  function nothing() {
    if (record(ACTS)[chosen.act][1].every((key) => chosen[key] !== "")) return "";
    if (chosen.act === "restore") return `No port of ${chosen.switch} has failed.`;
    return chosen.act === "fail-chip" ? "Every chip has failed." : `No other port of ${chosen.switch} works.`;
  }

  /** Do what was confirmed, and show what the server says. */
  async function send() {
    asked = false;
    said = "Asking ...";
    good = true;
    draw();
    try {
      const refused = await app.source.control(request());
      good = !refused;
      said = refused || "Done. What it changed is in the time line, as made by a person.";
    } catch {
      good = false;
      said = "The server does not answer.";
    }
    draw();
    looking.ask();
  }

  /** Ask, or take the question back; the keyboard goes to the button that is there then. */
  function ask(now) {
    asked = now;
    if (now) said = "";
    draw();
    byId(now ? "confirm" : "act").focus();
  }

  /** Buttons: ask first, then confirm. */
  function buttons() {
    if (nothing()) return h("span", { id: "nothing" }, nothing());
    if (!asked) return h("button", { id: "act", onclick: () => ask(true) }, "Do it ...");
    return h(
      "span.ask",
      { role: "alertdialog" },
      h("b", question()),
      h("button.danger", { id: "confirm", onclick: send }, "Yes, do it"),
      h("button", { id: "cancel", onclick: () => ask(false) }, "No"),
    );
  }

  /** The panel of acts; only where the server allows them, for the point under way of a live run. */
  function draw() {
    const place = byId("control"),
      running = app.live && record(model.pointEntry()).state === "running",
      allowed = app.overview.control === true && running && fabric.shown.data;
    place.hidden = !allowed;
    if (!allowed) return put(place);
    const acts = Object.entries(ACTS).map(([act, [name]]) => [act, name]);
    const drawn = [
      h("h3", "Act on the fabric"),
      h("div.acts", choice("Act", "act", acts), choices(record(ACTS)[chosen.act][1]), buttons()),
      said && h("p", { id: "control-says", role: "status", class: good ? "good" : "bad" }, said),
    ];
    keepFocus(place, "choice", () => put(place, ...drawn));
  }

  /** Draw the panel where another fabric is shown, so that a choice under way is not disturbed by each update. */
  function refresh() {
    const now = JSON.stringify([
      app.overview.control,
      app.live,
      app.run,
      fabric.shown.data?.width,
      app.point,
      record(model.pointEntry()).state,
    ]);
    if (now === shownFor) return;
    shownFor = now;
    asked = false;
    known = -Infinity;
    [broken, dead] = [{}, []];
    draw();
    if (!byId("control").hidden) looking.ask();
  }

  on("overview point", refresh);
  on("state", () => app.follow && learn(app.state));
  on("timeline", () => app.follow || byId("control").hidden || looking.ask());
})();
