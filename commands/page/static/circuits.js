"use strict";

(function () {
  const { s, put, byId, list, record, words, named, app, on, model, format, fabric } = Railyard;
  const MOST_WAITS = 3,
    WAITING = ["ask", "wait"];

  /** How deep circuits may bend inside of a switch. */
  function deepest(name) {
    const box = list(fabric.shown.data.nodes).find((each) => each.id === name || each.name === name);
    return box ? Math.min(60, Math.max(box.h * 1.15, 26)) : 60;
  }

  /** The curve of a circuit: it leaves each port in that port's direction, deeper the further they are apart. */
  function curve(a, b, most) {
    const reach = Math.min(most, 10 + Math.hypot(a.x - b.x, a.y - b.y) * 0.42),
      ahead = (p) => `${p.x + p.nx * reach} ${p.y + p.ny * reach}`;
    return `M${a.x} ${a.y}C${ahead(a)} ${ahead(b)} ${b.x} ${b.y}`;
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
  function circuit(name, given, most) {
    const a = fabric.shown.ports.get(`${name}:${given.a}`),
      b = fabric.shown.ports.get(`${name}:${given.b}`);
    if (!a || !b) return null;
    const d = curve(a.data, b.data, most);
    const line = s("path.circuit", {
      d,
      stroke: Railyard.looks.colour(given.kind),
      "data-switch": name,
      "data-a": given.a,
      "data-b": given.b,
      "data-kind": words(given.kind),
    });
    const casing = Railyard.looks.pale(given.kind) && s("path.circuit.casing", { d });
    const caught = named(s("path.catch", { d }), () => lines(name, given));
    return s("g", casing, line, caught);
  }

  /** A cross over a box or a port. */
  function cross(x, y, half) {
    return s("path.cross", {
      d: `M${x - half} ${y - half}L${x + half} ${y + half}M${x - half} ${y + half}L${x + half} ${y - half}`,
    });
  }

  /** Draw circuits of all switches. */
  function drawCircuits(state) {
    const drawn = Object.entries(record(state.circuits)).flatMap(([name, given]) => {
      const most = deepest(name);
      return list(given).map((each) => circuit(name, each, most));
    });
    put(fabric.shown.circuits, drawn);
  }

  /** Ports by switch in a part of the state, such as the failed ones: those that are in the drawing. */
  function portsIn(part) {
    const named = ([name, numbers]) => list(numbers).map((number) => fabric.shown.ports.get(`${name}:${number}`));
    return Object.entries(record(part)).flatMap(named).filter(Boolean);
  }

  /** Draw what ports do: lit, dark (hatched) or failed (crossed); and cross out dead ranks. */
  function drawPorts(state) {
    for (const { dot } of fabric.shown.ports.values()) {
      dot.setAttribute("r", dot.dataset.r);
      dot.style.fill = "";
    }
    for (const { dot } of portsIn(state.dark)) {
      dot.style.fill = Railyard.looks.fill("dark");
      dot.setAttribute("r", Math.max(4.5, dot.dataset.r * 1.5));
    }
    const gpus = list(state.dead).map((rank) => fabric.shown.gpus.get(rank)),
      boxes = gpus.filter(Boolean).map((gpu) => gpu.data);
    put(
      fabric.shown.marks,
      portsIn(state.failed).map(({ data }) => cross(data.x, data.y, 5.5)),
      boxes.map(({ x, y, w, h }) => cross(x + w / 2, y + h / 2, Math.min(w, h) / 2 - 2)),
    );
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

  /** Some ranks in words. */
  function ranks(numbers, most) {
    return `${numbers.length === 1 ? "rank" : "ranks"} ${format.some(numbers, most)}`;
  }

  /** The sentence of a rank that waits for others. */
  function waitSays(wait) {
    const whom = list(wait.for).length ? ` for ${ranks(list(wait.for), 8)}` : "";
    return `waits${whom}${wait.group ? ` (${words(wait.group)})` : ""}`;
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
    const all = (part) => Object.values(record(state[part])).flatMap(list),
      byKind = Railyard.grouped(all("circuits"), (each) => each.kind),
      kinds = [...byKind].map(([kind, mine]) => `${mine.length} ${Railyard.looks.look(kind).name || kind}`);
    const said = [];
    if (kinds.length) said.push(`${format.counted(all("circuits").length, "circuit")} (${kinds.join(", ")})`);
    for (const part of ["dark", "failed"])
      if (all(part).length) said.push(`${format.counted(all(part).length, "port")} ${part}`);
    if (state.unsure) {
      const change = state.unsure === 1 ? "changes" : "change";
      said.push(`${format.counted(state.unsure, "port")} ${change} faster than this file tells`);
    }
    if (list(state.dead).length) said.push(`${ranks(list(state.dead))} failed`);
    return [...said, ...waiting(state)].join(" · ");
  }

  /** Who waits: some ranks with whom they wait for, and the numbers of all others that are drawn as waiting. */
  function waiting(state) {
    const named = list(state.waits).slice(0, MOST_WAITS),
      known = new Set(named.map((wait) => wait.rank));
    const drawn = Object.entries(record(state.ranks)).filter(([, now]) => WAITING.includes(now.kind));
    const others = [...drawn.map(([rank]) => Number(rank)), ...list(state.waits).map((wait) => wait.rank)];
    const rest = [...new Set(others.filter((rank) => !known.has(rank)))].sort((a, b) => a - b);
    const more = rest.length ? `${ranks(rest, 8)} ${rest.length === 1 ? "waits" : "wait"}` : "";
    return [...named.map((wait) => `rank ${wait.rank} ${waitSays(wait)}`), more].filter(Boolean);
  }

  /** What the signs of the drawing mean; its colours are those of the time line. */
  function drawLegend(state) {
    const { key, fill } = Railyard.looks,
      dark = s("circle.port", { cx: 5.5, cy: 5.5, r: 5, fill: fill("dark") });
    dark.style.fill = fill("dark");
    const optical = list(fabric.shown.data.nodes).some((each) => each.kind === "ocs"),
      share = s("path.link.busy", { d: "M0 5.5H26", "stroke-width": 5 });
    put(
      byId("fabric-legend"),
      "Colours as in the time line",
      optical && key(11, 11, dark, "dark port"),
      key(11, 11, s("path.cross", { d: "M2 2L9 9M2 9L9 2" }), "failed"),
      Object.keys(record(state.links)).length > 0 && key(26, 11, share, "share of line rate"),
    );
  }

  /** Say which moment is shown. */
  function drawTime() {
    byId("fabric-time").textContent = `at ${format.moment(app.t, app.to - app.from)}`;
  }

  /** Draw the state of the fabric at the moment that is shown. */
  function draw() {
    drawTime();
    if (!fabric.shown.data || !app.state || !model.mine(app.state)) return;
    const state = app.state;
    drawCircuits(state);
    drawPorts(state);
    drawTraffic(state);
    byId("fabric-says").textContent = sentence(state);
    drawLegend(state);
  }

  on("state theme", draw);
  on("time", drawTime);

  Railyard.circuits = { waitSays, portSays, draw };
})();
