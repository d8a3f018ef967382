"use strict";

(function () {
  const { h, put, byId, list, record, words, app, on, model, fabric } = Railyard;
  const ACTS = {
    rewire: ["Rewire: a circuit between two ports", ["switch", "port", "other"]],
    fail: ["Fail a port", ["switch", "port"]],
    restore: ["Restore a failed port", ["switch", "port"]],
    "fail-chip": ["Fail a chip", ["rank"]],
  };
  const chosen = { act: "rewire", switch: "", port: "", other: "", rank: "" };
  let asked = false,
    said = "",
    good = false,
    shownFor = "";

  /** Optical switches of the drawing, by their ports. */
  function switches() {
    const data = fabric.shown.data || {},
      optical = new Set(
        list(data.nodes)
          .filter((each) => each.kind === "ocs")
          .map((each) => each.id),
      );
    const found = new Map();
    for (const port of list(data.ports)) {
      if (optical.size && !optical.has(port.switch)) continue;
      if (!found.has(port.switch)) found.set(port.switch, []);
      found.get(port.switch).push(port);
    }
    return found;
  }

  /** A choice among values with their names. */
  function choice(label, key, values) {
    if (!values.some(([value]) => String(value) === String(chosen[key])))
      chosen[key] = values.length ? String(values[0][0]) : "";
    const box = h(
      "select",
      {
        "data-choice": key,
        on: {
          change: (e) => {
            chosen[key] = e.target.value;
            asked = false;
            draw();
          },
        },
      },
      values.map(([value, name]) =>
        h("option", { value, text: name, selected: String(value) === String(chosen[key]) }),
      ),
    );
    return h("label", {}, h("span", { text: label }), box);
  }

  /** Ports of the chosen switch with their ranks, without `except`. */
  function portNames(found, except) {
    return list(found.get(chosen.switch))
      .filter((port) => String(port.number) !== except)
      .map((port) => [
        port.number,
        `${port.number}${port.rank === null || port.rank === undefined ? "" : ` (rank ${port.rank})`}`,
      ]);
  }

  /** The choices that an act needs. */
  function choices(needs) {
    const found = switches();
    const ranks = [...fabric.shown.gpus.keys()].sort((a, b) => a - b).map((rank) => [rank, `rank ${rank}`]);
    return needs.map((key) =>
      ({
        switch: () =>
          choice(
            "Switch",
            "switch",
            [...found.keys()].map((name) => [name, words(name)]),
          ),
        port: () => choice("Port", "port", portNames(found)),
        other: () => choice("and port", "other", portNames(found, chosen.port)),
        rank: () => choice("Chip", "rank", ranks),
      })[key](),
    );
  }

  /** What is asked of the server. */
  function request() {
    const made = { act: chosen.act };
    if (chosen.act === "fail-chip") return { ...made, rank: Number(chosen.rank) };
    made.switch = chosen.switch;
    if (chosen.act === "rewire") return { ...made, circuits: [[Number(chosen.port), Number(chosen.other)]] };
    return { ...made, port: Number(chosen.port) };
  }

  /** The act as a question. */
  function question() {
    if (chosen.act === "fail-chip")
      return `Fail the chip of rank ${chosen.rank}? Its links are cut and its agent is ended.`;
    const ports = `ports ${chosen.port} and ${chosen.other} of ${chosen.switch}`;
    if (chosen.act === "rewire") return `Connect ${ports}? Circuits that they have now are taken down.`;
    return `${chosen.act === "fail" ? "Fail" : "Restore"} port ${chosen.port} of ${chosen.switch}?`;
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
      said = refused || "Done. It stands in the time line as made by a person.";
    } catch {
      good = false;
      said = "The server does not answer.";
    }
    draw();
  }

  /** Buttons: ask first, then confirm. */
  function buttons() {
    if (!asked) {
      return h("button", {
        id: "act",
        text: "Do it ...",
        on: {
          click: () => {
            asked = true;
            said = "";
            draw();
            byId("confirm").focus();
          },
        },
      });
    }
    return h(
      "span",
      { class: "ask", role: "alertdialog" },
      h("b", { text: question() }),
      h("button", { id: "confirm", class: "danger", text: "Yes, do it", on: { click: send } }),
      h("button", {
        id: "cancel",
        text: "No",
        on: {
          click: () => {
            asked = false;
            draw();
            byId("act").focus();
          },
        },
      }),
    );
  }

  /** The panel of acts; only where the server allows them, for the point under way of a live run. */
  function draw() {
    const place = byId("control"),
      running = app.live && record(model.pointEntry()).state === "running",
      allowed = app.overview.control === true && running && fabric.shown.data;
    place.hidden = !allowed;
    if (!allowed) return put(place);
    const kept = place.contains(document.activeElement) ? document.activeElement.dataset.choice : null;
    const acts = Object.entries(ACTS).map(([act, [name]]) => [act, name]);
    put(
      place,
      h("h3", { text: "Act on the fabric" }),
      h("div", { class: "acts" }, choice("Act", "act", acts), choices(record(ACTS)[chosen.act][1]), buttons()),
      said ? h("p", { id: "control-says", role: "status", class: good ? "good" : "bad", text: said }) : null,
    );
    const again = kept ? place.querySelector(`[data-choice="${kept}"]`) : null;
    if (again) again.focus();
  }

  /** Draw the panel where another fabric is shown, so that a choice under way is not disturbed by each update. */
  function refresh() {
    const now = JSON.stringify([
      app.overview.control,
      app.live,
      app.run,
      fabric.shown.data && fabric.shown.data.width,
      app.point,
      record(model.pointEntry()).state,
    ]);
    if (now === shownFor) return;
    shownFor = now;
    asked = false;
    draw();
  }

  on("overview", refresh);
  on("point", refresh);
})();
