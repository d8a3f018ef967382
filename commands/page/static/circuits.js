"use strict";

(function () {
  const { s, put, byId, list, record, words, named, app, on, model, format, fabric } = Railyard;
  const MOST_WAITS = 3,
    WAITING = ["ask", "wait"];

  /** Centre of the box of a switch, towards which its circuits bend. */
  function centre(name) {
    const box = list(fabric.shown.data.nodes).find((each) => each.id === name || each.name === name);
    return box ? [box.x + box.w / 2, box.y + box.h / 2, box.h] : null;
  }

  /** The curve of a circuit: it leaves each port in that port's direction, deeper the further they are apart. */
  function curve(a, b, middle) {
    const apart = Math.hypot(a.x - b.x, a.y - b.y),
      deepest = middle ? Math.min(60, Math.max(middle[2] * 1.15, 26)) : 60;
    const reach = Math.min(deepest, 10 + apart * 0.42);
    if ([a.nx, a.ny, b.nx, b.ny].every(isFinite)) {
      const ahead = (p) => `${p.x + p.nx * reach} ${p.y + p.ny * reach}`;
      return `M${a.x} ${a.y}C${ahead(a)} ${ahead(b)} ${b.x} ${b.y}`;
    }
    if (!middle) return `M${a.x} ${a.y}L${b.x} ${b.y}`;
    const [mx, my, tall] = middle;
    if (Math.abs(a.y - b.y) < 1) {
      const deep = Math.min(tall * 0.95, 14 + apart * 0.45) * Math.sign(my - a.y || 1);
      return `M${a.x} ${a.y}C${a.x} ${a.y + deep} ${b.x} ${b.y + deep} ${b.x} ${b.y}`;
    }
    const pull = (p) => [p.x + (mx - p.x) * 0.7, p.y + (my - p.y) * 0.7].join(" ");
    return `M${a.x} ${a.y}C${pull(a)} ${pull(b)} ${b.x} ${b.y}`;
  }

  /** Lines that name a circuit. */
  function lines(name, circuit) {
    const kind = Railyard.looks.look(circuit.kind).name || circuit.kind;
    const ranks = [circuit.a, circuit.b].map((number) => {
      const port = fabric.shown.ports.get(`${name}:${number}`);
      return port && port.data.rank !== null ? ` (rank ${port.data.rank})` : "";
    });
    return [
      `circuit ${name}: port ${circuit.a}${ranks[0]} and port ${circuit.b}${ranks[1]}`,
      `for ${kind}${circuit.group ? `: ${circuit.group}` : ""}`,
      format.group(words(circuit.group)),
      typeof circuit.since === "number" ? `stands for ${format.duration(app.t - circuit.since)}` : "",
    ];
  }

  /** One circuit, lit in the colour of its kind. */
  function circuit(name, given, middle) {
    const a = fabric.shown.ports.get(`${name}:${given.a}`),
      b = fabric.shown.ports.get(`${name}:${given.b}`);
    if (!a || !b) return null;
    const d = curve(a.data, b.data, middle);
    const line = s("path", {
      d,
      class: "circuit",
      stroke: Railyard.looks.colour(given.kind),
      "data-switch": name,
      "data-a": given.a,
      "data-b": given.b,
      "data-kind": words(given.kind),
    });
    const casing = Railyard.looks.pale(given.kind) ? s("path", { d, class: "circuit casing" }) : null;
    return s(
      "g",
      {},
      casing,
      line,
      named(s("path", { d, class: "catch" }), () => lines(name, given)),
    );
  }

  /** A cross over a box or a port. */
  function cross(x, y, half) {
    return s("path", {
      class: "cross",
      d: `M${x - half} ${y - half}L${x + half} ${y + half}M${x - half} ${y + half}L${x + half} ${y - half}`,
    });
  }

  /** Draw circuits of all switches. */
  function drawCircuits(state) {
    put(
      fabric.shown.circuits,
      Object.entries(record(state.circuits)).map(([name, given]) => {
        const middle = centre(name);
        return list(given).map((each) => circuit(name, each, middle));
      }),
    );
  }

  /** Draw what ports do: lit, dark (hatched) or failed (crossed); and cross out dead ranks. */
  function drawPorts(state) {
    const marks = [];
    for (const { dot } of fabric.shown.ports.values()) {
      dot.setAttribute("r", dot.dataset.r);
      dot.style.fill = "";
    }
    for (const [name, numbers] of Object.entries(record(state.dark))) {
      for (const number of list(numbers)) {
        const port = fabric.shown.ports.get(`${name}:${number}`);
        if (!port) continue;
        port.dot.style.fill = Railyard.looks.fill("dark");
        port.dot.setAttribute("r", Math.max(4.5, port.dot.dataset.r * 1.5));
      }
    }
    for (const [name, numbers] of Object.entries(record(state.failed))) {
      for (const number of list(numbers)) {
        const port = fabric.shown.ports.get(`${name}:${number}`);
        if (port) marks.push(cross(port.data.x, port.data.y, 5.5));
      }
    }
    for (const rank of list(state.dead)) {
      const gpu = fabric.shown.gpus.get(rank);
      if (gpu)
        marks.push(
          cross(gpu.data.x + gpu.data.w / 2, gpu.data.y + gpu.data.h / 2, Math.min(gpu.data.w, gpu.data.h) / 2 - 2),
        );
    }
    put(fabric.shown.marks, marks);
  }

  /** Draw what GPUs do, and how much of their line rate links carry. */
  function drawTraffic(state) {
    const ranks = record(state.ranks),
      links = record(state.links);
    for (const [rank, { box, group }] of fabric.shown.gpus) {
      const kind = record(ranks[rank]).kind;
      box.style.fill = kind ? Railyard.looks.fill(kind) : "";
      group.dataset.kind = words(kind);
    }
    for (const [name, line] of fabric.shown.links) {
      const share = Math.max(0, Math.min(1, record(links[name]).share || 0));
      line.setAttribute("stroke-width", (0.8 + 4.2 * share).toFixed(2));
      line.classList.toggle("busy", share > 0.02);
    }
  }

  /** The sentence of a rank that waits for others. */
  function waitSays(wait) {
    const whom = list(wait.for).length
      ? `waits for ${list(wait.for).length === 1 ? "rank" : "ranks"} ${format.some(list(wait.for), 8)}`
      : "waits";
    return `${whom}${wait.group ? ` (${words(wait.group)})` : ""}`;
  }

  /** What a port does at the moment, in words. */
  function portSays(port) {
    const state = record(app.state),
      name = port.switch;
    if (list(record(state.failed)[name]).includes(port.number)) return ["failed"];
    if (list(record(state.dark)[name]).includes(port.number)) return ["dark: its circuit is being changed"];
    const found = list(record(state.circuits)[name]).find((each) => each.a === port.number || each.b === port.number);
    const now = record(state.links)[port.interface];
    const whom = found && (words(found.group) || Railyard.looks.look(found.kind).name);
    return [
      found ? `circuit with port ${found.a + found.b - port.number}, for ${whom}` : "",
      now ? `sends ${format.rate(now.tx_gbps)} (${format.percent(now.share)} of line rate)` : "",
    ];
  }

  /** The sentence below the drawing: circuits by kind, dark and failed ports, waits. */
  function sentence(state) {
    const byKind = new Map();
    for (const given of Object.values(record(state.circuits))) {
      for (const each of list(given)) byKind.set(each.kind, (byKind.get(each.kind) || 0) + 1);
    }
    const total = [...byKind.values()].reduce((sum, n) => sum + n, 0);
    const kinds = [...byKind].map(([kind, n]) => `${n} ${Railyard.looks.look(kind).name || kind}`).join(", ");
    const count = (part) => Object.values(record(state[part])).reduce((sum, ports) => sum + list(ports).length, 0);
    const said = [];
    if (total) said.push(`${format.counted(total, "circuit")} (${kinds})`);
    if (count("dark")) said.push(`${format.counted(count("dark"), "port")} dark`);
    if (count("failed")) said.push(`${format.counted(count("failed"), "port")} failed`);
    if (state.unsure) {
      const change = state.unsure === 1 ? "changes" : "change";
      said.push(`${format.counted(state.unsure, "port")} ${change} faster than this file tells`);
    }
    if (list(state.dead).length)
      said.push(`${list(state.dead).length === 1 ? "rank" : "ranks"} ${format.some(list(state.dead))} failed`);
    return [...said, ...waiting(state)].join(" · ");
  }

  /** Who waits: some ranks with whom they wait for, and the numbers of all others that are drawn as waiting. */
  function waiting(state) {
    const named = list(state.waits).slice(0, MOST_WAITS),
      known = new Set(named.map((wait) => wait.rank));
    const drawn = Object.entries(record(state.ranks)).filter(([, now]) => WAITING.includes(now.kind));
    const others = [...drawn.map(([rank]) => Number(rank)), ...list(state.waits).map((wait) => wait.rank)];
    const rest = [...new Set(others.filter((rank) => !known.has(rank)))].sort((a, b) => a - b);
    const verb = rest.length === 1 ? "waits" : "wait";
    const more = rest.length ? `${rest.length === 1 ? "rank" : "ranks"} ${format.some(rest, 8)} ${verb}` : "";
    return [...named.map((wait) => `rank ${wait.rank} ${waitSays(wait)}`), more].filter(Boolean);
  }

  /** What the signs of the drawing mean; its colours are those of the time line. */
  function drawLegend(state) {
    const chip = (width, ...drawn) => s("svg", { class: "chip", width, height: 11, "aria-hidden": "true" }, ...drawn);
    const key = (drawn, text) => Railyard.h("span", { class: "key" }, drawn, text);
    const dark = chip(11, s("circle", { cx: 5.5, cy: 5.5, r: 5, class: "port", fill: Railyard.looks.fill("dark") }));
    dark.firstChild.style.fill = Railyard.looks.fill("dark");
    const optical = list(fabric.shown.data.nodes).some((each) => each.kind === "ocs");
    const carries = Object.keys(record(state.links)).length > 0;
    put(
      byId("fabric-legend"),
      "Colours as in the time line",
      optical ? key(dark, "dark port") : null,
      key(chip(11, s("path", { class: "cross", d: "M2 2L9 9M2 9L9 2" })), "failed"),
      carries
        ? key(chip(26, s("path", { d: "M0 5.5H26", class: "link busy", "stroke-width": 5 })), "share of line rate")
        : null,
    );
  }

  /** Draw the state of the fabric at the moment that is shown. */
  function draw() {
    byId("fabric-time").textContent = `at ${format.moment(app.t, app.to - app.from)}`;
    if (!fabric.shown.data || !app.state || !model.mine(app.state)) return;
    const state = app.state;
    drawCircuits(state);
    drawPorts(state);
    drawTraffic(state);
    byId("fabric-says").textContent = sentence(state);
    drawLegend(state);
  }

  on("state", draw);
  on("time", () => (byId("fabric-time").textContent = `at ${format.moment(app.t, app.to - app.from)}`));
  on("theme", draw);

  Railyard.circuits = { waitSays, portSays, draw };
})();
