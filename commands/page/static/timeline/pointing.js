"use strict";

(function () {
  const { h, put, dress, byId, list, words, app, on, model, format, derive, timeline } = Railyard;
  const { view, parts } = timeline;
  const STILL_PX = 4,
    AFTER_SCROLL_MS = 350;
  const down = new Map();
  let dragged = false,
    pageScrolled = -Infinity;

  /** Zoom by a factor, keeping the time at `x` pixels in its place. */
  function zoom(factor, x) {
    const at = x === undefined ? middle() : timeline.timeOf(x),
      span = (app.to - app.from) / factor;
    const share = (at - app.from) / (app.to - app.from);
    leaveLive();
    model.setWindow(at - share * span, at + (1 - share) * span);
  }

  /** Around which time keys and buttons zoom: the cursor where it can be seen, else the middle. */
  function middle() {
    return app.t >= app.from && app.t <= app.to ? app.t : (app.from + app.to) / 2;
  }

  /** Move the window by a share of its length. */
  function pan(share) {
    const by = (app.to - app.from) * share;
    leaveLive();
    model.setWindow(app.from + by, app.to + by);
  }

  /** Stop following a live run: somebody looks at another window. */
  function leaveLive() {
    if (app.follow) setFollow(false);
  }

  /** Follow the present of a live run, or stop. */
  function setFollow(follow) {
    app.follow = Boolean(follow && app.live);
    Railyard.emit("follow");
  }

  /** Show the step before or after the cursor, as a whole; the first press shows that of the cursor. */
  function step(by) {
    const read = timeline.current(),
      steps = read ? list(read.steps) : [];
    if (!steps.length) return;
    let at = steps.findIndex((each) => app.t >= each.s && app.t < each.e);
    if (at < 0) at = steps.findIndex((each) => each.s > app.t) - (by > 0 ? 1 : 0);
    const now = steps[at],
      whole = now && Math.abs(app.to - app.from - (now.e - now.s) * 1.04) < (now.e - now.s) * 0.02;
    const next = steps[Math.max(0, Math.min(steps.length - 1, whole ? at + by : Math.max(0, at)))];
    leaveLive();
    const margin = (next.e - next.s) * 0.02;
    model.setWindow(next.s - margin, next.e + margin);
    if (!(app.t >= next.s && app.t < next.e)) model.setTime((next.s + next.e) / 2);
  }

  /** The row of a lane at a height of the window, or null. */
  function rowAt(clientY) {
    const y = clientY - parts.body.getBoundingClientRect().top + parts.scroll.scrollTop;
    return timeline.laneRows().find((row) => y >= row.y && y < row.y + row.height) || null;
  }

  /** Lines that name the bar of a lane at a time. */
  function barLines(lane, t) {
    const read = timeline.current(),
      found = read ? derive.found(read, lane.id, t) : null;
    if (!found) return [words(lane.name), `${words(lane.group)}, idle at ${format.moment(t, app.to - app.from)}`];
    const port = lane.kind === "port",
      lit = port && !["dark", "failed"].includes(found.kind),
      kind = Railyard.looks.look(found.kind).name || found.kind;
    const from = format.moment(found.start, app.to - app.from);
    return [
      `${kind}${lit ? " circuit" : ""} for ${format.duration(found.end - found.start, 4)}`,
      found.label === kind ? "" : words(found.label),
      format.group(words(found.label)),
      `${words(lane.name)}${port ? ` of ${words(lane.group)}` : ""}${found.step >= 0 ? `, step ${found.step}` : ""}`,
      found.peer > 0 ? `with port ${found.peer}` : "",
      found.bytes > 0 ? format.bytes(found.bytes) : "",
      `from ${from} to ${format.moment(found.end, app.to - app.from)}`,
    ];
  }

  /** Pixels from the left edge of the time line to a pointer. */
  function across(e) {
    return e.clientX - parts.all.getBoundingClientRect().left;
  }

  /** Name what is under the pointer, and mark its time. */
  function hover(e) {
    const x = across(e),
      inside = x >= view.left && x <= view.left + view.width;
    dress(parts.hover, { x1: x, x2: x, y2: inside ? view.body : 0 });
    const row = inside && parts.body.contains(e.target) ? rowAt(e.clientY) : null;
    if (row) Railyard.showTip(parts, barLines(row.lane, timeline.timeOf(x)), e.clientX, e.clientY);
    else Railyard.hideTip(parts);
  }

  /** Distance and middle of two fingers. */
  function fingers() {
    const [a, b] = [...down.values()];
    return { apart: Math.max(8, Math.abs(a.x - b.x)), middle: across({ clientX: (a.x + b.x) / 2 }) };
  }

  /** A pointer goes down: a drag begins, or a pinch. */
  function press(e) {
    if (e.button !== 0 || e.target.closest(".group")) return;
    const scrub = parts.top.contains(e.target);
    down.set(e.pointerId, { x: e.clientX, start: e.clientX, scrub });
    if (down.size === 1) dragged = false;
    if (scrub) scrubTo(e);
  }

  /** Move the cursor to the pointer. */
  function scrubTo(e) {
    leaveLive();
    model.setTime(timeline.timeOf(across(e)));
  }

  /** A pointer moves: the window follows one, and two zoom it. */
  function move(e) {
    const held = down.get(e.pointerId);
    if (!held) return void (e.pointerType === "touch" || hover(e));
    Railyard.hideTip(parts);
    if (held.scrub) return scrubTo(e);
    const before = down.size === 2 ? fingers() : null,
      by = e.clientX - held.x;
    if (Math.abs(e.clientX - held.start) > STILL_PX && !dragged) {
      dragged = true;
      parts.all.setPointerCapture(e.pointerId);
    }
    held.x = e.clientX;
    if (before) {
      const now = fingers();
      dragged = true;
      zoom(now.apart / before.apart, now.middle);
      pan((before.middle - now.middle) / view.width);
    } else if (dragged) pan(-by / view.width);
  }

  /** A pointer goes up: without a drag it was a click, which moves the cursor. */
  function release(e) {
    const held = down.get(e.pointerId);
    down.delete(e.pointerId);
    if (!held || dragged || held.scrub || e.type === "pointercancel") return;
    const x = across(e);
    if (x < view.left || x > view.left + view.width) return;
    leaveLive();
    const row = rowAt(e.clientY);
    if (row) view.lane = timeline.laneRows().indexOf(row);
    model.setTime(timeline.timeOf(x));
    if (row && e.pointerType === "touch") Railyard.showTip(parts, barLines(row.lane, app.t), e.clientX, e.clientY);
  }

  /** The wheel zooms at the pointer; over the names it scrolls, sideways or with Shift it moves the window. */
  function wheel(e) {
    const x = across(e);
    const scrolls = performance.now() - pageScrolled < AFTER_SCROLL_MS && !e.ctrlKey;
    if (x < view.left || scrolls) return;
    e.preventDefault();
    const unit = e.deltaMode === 1 ? 30 : 1,
      sideways = Math.abs(e.deltaX) > Math.abs(e.deltaY) || e.shiftKey;
    if (sideways) pan(((e.deltaX || e.deltaY) * unit) / view.width);
    else zoom(Math.exp(-Math.max(-240, Math.min(240, e.deltaY * unit)) * 0.0022), x);
  }

  const TOOLS = [
    ["prev-step", "‹ step", "Previous step ( [ )", () => step(-1)],
    ["next-step", "step ›", "Next step ( ] )", () => step(1)],
    ["left", "←", "Earlier (left arrow)", () => pan(-0.25)],
    ["right", "→", "Later (right arrow)", () => pan(0.25)],
    ["out", "−", "Zoom out ( - )", () => zoom(1 / 1.6)],
    ["in", "+", "Zoom in ( + )", () => zoom(1.6)],
    ["whole", "All", "The whole point ( 0 )", () => whole()],
    ["fold", "Fold", "Fold or unfold the groups of lanes ( f )", () => fold()],
  ];

  /** Fold or unfold the groups of lanes. */
  function fold() {
    Railyard.lanes.toggleAll(timeline.current()?.lanes);
  }

  /** Show the whole point. */
  function whole() {
    leaveLive();
    model.setWindow(0, model.duration());
  }

  /** The buttons above the time line. */
  function tools() {
    const made = TOOLS.map(([id, text, title, act]) =>
      h("button", { id, title, "aria-label": title, onclick: act }, text),
    );
    const given = { id: "follow", title: "Follow the live run (space)", onclick: () => setFollow(!app.follow) },
      follow = h("button", given, "Follow live");
    put(byId("time-tools"), follow, made);
    showFollow();
  }

  /** Show whether the present is followed. */
  function showFollow() {
    const button = byId("follow");
    button.hidden = !app.live;
    button.setAttribute("aria-pressed", app.follow);
  }

  tools();
  parts.all.addEventListener("pointerdown", press);
  parts.all.addEventListener("pointermove", move);
  parts.all.addEventListener("pointerup", release);
  parts.all.addEventListener("pointercancel", release);
  parts.all.addEventListener("pointerleave", () => {
    Railyard.hideTip(parts);
    dress(parts.hover, { y2: 0 });
  });
  parts.all.addEventListener("wheel", wheel, { passive: false });
  window.addEventListener("scroll", () => (pageScrolled = performance.now()), { passive: true });
  on("overview follow", showFollow);

  Railyard.pointing = { zoom, pan, step, whole, fold, setFollow, barLines };
})();
