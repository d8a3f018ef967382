"use strict";

(function () {
  const { h, s, put, byId, there, list, record, words, named, app, on, model, format } = Railyard;

  /** The drawing that is shown: its data, and the nodes of its parts by id. */
  const shown = {
    data: null,
    key: "",
    ports: new Map(),
    gpus: new Map(),
    links: new Map(),
    circuits: null,
    marks: null,
  };

  /** The drawing of the selected point, or null. */
  function drawingOf() {
    return record(app.overview.plans)[record(model.pointEntry()).plan] || null;
  }

  /** Lines that name a GPU, with what it does at the moment. */
  function gpuLines(node) {
    const now = record(record(record(app.state).ranks)[node.rank]);
    const dead = list(record(app.state).dead).includes(node.rank);
    const waits = list(record(app.state).waits).find((wait) => wait.rank === node.rank);
    return [
      there(node.rank) ? `rank ${node.rank}` : words(node.name),
      node.tenant ? `tenant ${words(node.tenant)}` : "",
      dead ? "failed" : now.kind ? Railyard.looks.look(now.kind).name || now.kind : "",
      words(now.label),
      waits ? Railyard.circuits.waitSays(waits) : "",
    ];
  }

  /** Lines that name a port, with its rate and what it does at the moment. */
  function portLines(port) {
    return [
      `${words(port.switch)}, port ${port.number}`,
      there(port.rank) ? `rank ${port.rank}, lane ${port.lane} (${words(port.interface)})` : "",
      `line rate ${format.rate(port.gbps)}`,
      ...Railyard.circuits.portSays(port),
    ];
  }

  /** Lines that name a link, with its rates at the moment. */
  function linkLines(link) {
    const now = record(record(app.state).links)[link.interface];
    return [
      words(link.name || link.interface),
      words(link.network),
      now ? `sends ${format.rate(now.tx_gbps)}, receives ${format.rate(now.rx_gbps)}` : "",
      now && typeof now.share === "number" ? `${format.percent(now.share)} of line rate` : "",
    ];
  }

  /** A box: a server, a GPU, a switch. */
  function node(given) {
    const kind = words(given.kind),
      gpu = kind === "gpu" || kind === "client" || kind === "spare";
    const group = s("g", { class: `node node-${kind.replace(/[^a-z0-9-]/gi, "")}`, "data-id": words(given.id) });
    const { x, y, w, h, rank } = given,
      ranked = gpu && there(rank);
    const box = s("rect", { x, y, width: w, height: h, rx: gpu ? 3 : 5 });
    group.append(box);
    const below = h < 26 ? h / 2 + 4 : isSwitch(kind) ? h - 7 : 13,
      says = ranked ? String(rank) : words(given.name),
      most = gpu ? Math.min(h * 0.62, w * 0.5) : isSwitch(kind) ? h * 0.5 : 14;
    const title = gpu
      ? s("text.mid", { x: x + w / 2, y: y + h / 2 }, says)
      : s("text.corner", { x: x + 7, y: y + below }, says);
    title.style.setProperty("--most", `${most}px`);
    if (!gpu || says.length * 5 <= w + 8) group.append(title);
    if (ranked) shown.gpus.set(rank, { group, box, data: given });
    return named(group, () =>
      gpu ? gpuLines(given) : [words(given.name), kind === "ocs" ? "optical circuit switch" : kind],
    );
  }

  /** Whether a box is a switch, inside which circuits are drawn. */
  function isSwitch(kind) {
    return kind === "ocs" || kind === "electrical";
  }

  /** A line between a GPU and a port, or between two switches; gates of a mesh are thin. */
  function link(given) {
    const points = list(given.path).length > 1 ? given.path : [list(given.from), list(given.to)];
    if (!points.flat().every(isFinite) || points.some((each) => each.length !== 2)) return null;
    const d = `M${points.map((each) => each.join(" ")).join("L")}`;
    const line = s("path", { d, "stroke-width": 0.9, class: given.network === "mesh" ? "link gate" : "link" });
    const catcher = named(s("path.catch", { d }), () => linkLines(given));
    if (given.interface) shown.links.set(given.interface, line);
    return s("g", line, catcher);
  }

  /** A port of a switch. */
  function port(given) {
    const dot = s("circle.port", { cx: given.x, cy: given.y, r: 3, "data-id": words(given.id), "data-r": 3 });
    shown.ports.set(`${given.switch}:${given.number}`, { dot, data: given });
    return named(dot, () => portLines(given));
  }

  /** Make the drawing of the selected point, where it is another one than before. */
  function build() {
    const data = drawingOf(),
      panel = byId("fabric-panel");
    panel.hidden = !data;
    byId("run-view").querySelector(".top").classList.toggle("single", !data);
    const key = JSON.stringify(data); // each overview that is read has plans of its own
    if (key === shown.key) return;
    Object.assign(shown, { data, key, ports: new Map(), gpus: new Map(), links: new Map() });
    if (!data) return put(byId("fabric"));
    const boxes = list(data.nodes).filter((each) => isFinite(each.x) && isFinite(each.w));
    const inRack = data.kind === "rack" || data.kind === "mesh",
      behind = (each) => each.kind === "server" || (each.kind === "ocs" && inRack);
    const ofMesh = (each) => each.network === "mesh",
      links = list(data.links);
    shown.circuits = s("g", { id: "circuits" });
    shown.marks = s("g", { id: "crosses" });
    const label =
      "The fabric: servers, GPUs by rank, switches with their ports and circuits. Arrow keys name its parts.";
    const drawn = s(
      "svg",
      {
        viewBox: `0 0 ${data.width || 100} ${data.height || 100}`,
        role: "img",
        tabindex: 0,
        id: "fabric-svg",
        "aria-label": label,
        onkeydown: walk,
        onblur: leave,
      },
      boxes.filter((each) => behind(each) && isSwitch(each.kind)).map(node),
      boxes.filter((each) => each.kind === "server").map(node),
      s("g", links.filter((each) => !ofMesh(each)).map(link)),
      boxes.filter((each) => !behind(each)).map(node),
      s("g", links.filter(ofMesh).map(link)),
      shown.circuits,
      s("g", list(data.ports).map(port)),
      shown.marks,
    );
    drawn.style.maxWidth = `${Math.round((data.width || 100) * 1.5)}px`;
    put(byId("fabric"), h("div", { class: data.width > 1100 ? "scroll-x wide" : "" }, drawn));
    scale();
    if (data.width > 1100) drawn.style.minWidth = `${Math.min(data.width, 1600)}px`;
    Railyard.circuits.draw();
  }

  /** Tell texts how many units of the drawing a pixel of the screen is, so that they keep their size. */
  function scale() {
    const drawn = byId("fabric-svg");
    if (!drawn || !drawn.clientWidth) return;
    const k = Math.max(shown.data.width / drawn.clientWidth, shown.data.height / drawn.clientHeight);
    drawn.style.setProperty("--k", k.toFixed(3));
    for (const { dot, data } of shown.ports.values()) {
      const r = Math.max(1.2, Math.min(3 * k, isFinite(data.size) ? data.size * 0.42 : 3 * k));
      dot.dataset.r = r.toFixed(2);
      dot.setAttribute("r", dot.dataset.r);
    }
  }

  let walked = -1;

  /** Things that arrow keys name, in order: GPUs, then ports. */
  function things() {
    const gpus = [...shown.gpus.values()].map((gpu) => [gpu.box, () => gpuLines(gpu.data)]);
    return gpus.concat([...shown.ports.values()].map((each) => [each.dot, () => portLines(each.data)]));
  }

  /** Name the next or the previous thing. */
  function walk(e) {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
    if (!by || e.altKey || e.ctrlKey) return;
    const all = things();
    if (!all.length) return;
    leave();
    walked = (walked + by + all.length) % all.length;
    const [thing, lines] = all[walked],
      box = thing.getBoundingClientRect();
    thing.classList.add("walked");
    Railyard.showTip(thing, lines(), box.left + box.width / 2, box.bottom);
    Railyard.say(lines().filter(Boolean).join(", "));
    e.preventDefault();
    e.stopPropagation();
  }

  /** Leave the thing that was named last. */
  function leave() {
    for (const thing of byId("fabric").querySelectorAll(".walked")) {
      thing.classList.remove("walked");
      Railyard.hideTip(thing);
    }
  }

  on("point overview", build);
  on("resize", scale);

  Railyard.fabric = { shown };
})();
