"use strict";

(function () {
  const { h, s, put, byId, list, record, words, named, app, on, model, format } = Railyard;

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
    const entry = model.pointEntry(),
      plans = record(app.overview.plans);
    return entry && plans[entry.plan] ? plans[entry.plan] : null;
  }

  /** Lines that name a GPU, with what it does at the moment. */
  function gpuLines(node) {
    const now = record(record(record(app.state).ranks)[node.rank]);
    const dead = list(record(app.state).dead).includes(node.rank);
    const waits = list(record(app.state).waits).find((wait) => wait.rank === node.rank);
    return [
      node.rank === null || node.rank === undefined ? words(node.name) : `rank ${node.rank}`,
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
      port.rank === null || port.rank === undefined
        ? ""
        : `rank ${port.rank}, lane ${port.lane} (${words(port.interface)})`,
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
    const box = s("rect", { x: given.x, y: given.y, width: given.w, height: given.h, rx: gpu ? 3 : 5 });
    group.append(box);
    const title = s(
      "text",
      gpu
        ? { x: given.x + given.w / 2, y: given.y + given.h / 2, class: "mid" }
        : {
            x: given.x + 7,
            y: given.y + (given.h < 26 ? given.h / 2 + 4 : isSwitch(kind) ? given.h - 7 : 13),
            class: "corner",
          },
    );
    title.style.setProperty(
      "--most",
      `${gpu ? Math.min(given.h * 0.62, given.w * 0.5) : isSwitch(kind) ? given.h * 0.5 : 14}px`,
    );
    title.textContent = gpu && given.rank !== null && given.rank !== undefined ? String(given.rank) : words(given.name);
    if (!gpu || title.textContent.length * 5 <= given.w + 8) group.append(title);
    if (given.rank !== null && given.rank !== undefined && gpu) shown.gpus.set(given.rank, { group, box, data: given });
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
    const catcher = named(s("path", { d, class: "catch" }), () => linkLines(given));
    if (given.interface) shown.links.set(given.interface, line);
    return s("g", {}, line, catcher);
  }

  /** A port of a switch. */
  function port(given) {
    const dot = s("circle", { cx: given.x, cy: given.y, r: 3, class: "port", "data-id": words(given.id), "data-r": 3 });
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
    const behind = (each) =>
      each.kind === "server" || (each.kind === "ocs" && (data.kind === "rack" || data.kind === "mesh"));
    const ofMesh = (each) => each.network === "mesh",
      links = list(data.links);
    shown.circuits = s("g", { id: "circuits" });
    shown.marks = s("g", { id: "crosses" });
    const drawn = s(
      "svg",
      {
        viewBox: `0 0 ${data.width || 100} ${data.height || 100}`,
        role: "img",
        tabindex: 0,
        id: "fabric-svg",
        "aria-label":
          "The fabric: servers, GPUs by rank, switches with their ports and circuits. Arrow keys name its parts.",
      },
      boxes.filter((each) => behind(each) && isSwitch(each.kind)).map(node),
      boxes.filter((each) => each.kind === "server").map(node),
      s("g", {}, links.filter((each) => !ofMesh(each)).map(link)),
      boxes.filter((each) => !behind(each)).map(node),
      s("g", {}, links.filter(ofMesh).map(link)),
      shown.circuits,
      s("g", {}, list(data.ports).map(port)),
      shown.marks,
    );
    drawn.style.maxWidth = `${Math.round((data.width || 100) * 1.5)}px`;
    drawn.addEventListener("keydown", walk);
    drawn.addEventListener("blur", () => leave());
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
    return [
      ...[...shown.gpus.values()].map((gpu) => [gpu.box, () => gpuLines(gpu.data)]),
      ...[...shown.ports.values()].map((each) => [each.dot, () => portLines(each.data)]),
    ];
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

  on("point", build);
  on("overview", build);
  on("resize", scale);

  Railyard.fabric = { shown, build };
})();
