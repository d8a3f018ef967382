"use strict";

(function () {
  const { app, there, list, record, model, on, derive, pointing } = Railyard;
  const LEAST_PAUSE_MS = 120,
    PATIENT_MS = 1000,
    COST_FACTOR = 10,
    STRIPS_MS = 2000,
    OVERVIEW_MS = 1000,
    LATE_WALL_S = 2.5,
    TRIES = 3,
    FIRST_WINDOW_S = 10;

  /** What is known of the stream: parts that changed since the last update, and times in milliseconds of the page. */
  const seen = {
    parts: new Set(),
    first: 0,
    last: -Infinity,
    cost: 0,
    timer: 0,
    busy: false,
    strips: -Infinity,
    news: -Infinity,
    overview: -Infinity,
    all: false,
  };
  const times = { ms: 0, cost: 0, updates: 0 };

  /** A tick of the server: note what changed, and update as soon as thrift allows. */
  function heard(tick) {
    list(tick.parts).forEach((part) => seen.parts.add(part));
    if (tick.point === app.point && typeof tick.now === "number") app.now = Math.max(app.now, tick.now);
    if (there(tick.point) && tick.point !== seen.point) seen.all = true;
    if (tick.live === false && app.live) seen.all = true; // the server may end soon
    seen.point = tick.point;
    if (!seen.first) seen.first = performance.now();
    plan();
  }

  /** Plan the next update: a change of the fabric after 0.12 s, others after 1 s, and after ten times their cost. */
  function plan() {
    if (seen.busy || document.hidden || !seen.parts.size) return;
    const atOnce = seen.all || seen.parts.has("circuits"),
      pause = Math.max(atOnce ? LEAST_PAUSE_MS : PATIENT_MS, COST_FACTOR * seen.cost);
    clearTimeout(seen.timer);
    seen.timer = setTimeout(update, Math.max(0, seen.last + pause - performance.now()));
  }

  /** Read what changed and draw it. */
  async function update() {
    seen.busy = true;
    const first = seen.first,
      parts = new Set(seen.parts);
    seen.first = 0;
    seen.parts.clear();
    seen.work = 0;
    try {
      await readParts(parts);
      await painted();
      note(first);
    } catch (error) {
      Railyard.trouble(error);
    }
    seen.last = performance.now();
    seen.busy = false;
    if (seen.parts.size) plan();
  }

  /** Measure how long drawing takes, without the wait for the server. */
  function cost(act) {
    const start = performance.now();
    act();
    seen.work += performance.now() - start;
  }

  /** Wait until what was drawn is on the screen. */
  function painted() {
    return new Promise((resolve) =>
      requestAnimationFrame(() => {
        const start = performance.now(),
          channel = new MessageChannel();
        channel.port1.onmessage = () => {
          seen.work += performance.now() - start;
          resolve();
        };
        channel.port2.postMessage(0);
      }),
    );
  }

  /** Note the cost of the update and the time from the tick to the screen. */
  function note(first) {
    seen.cost = times.cost = seen.work;
    times.ms = performance.now() - first;
    times.updates += 1;
  }

  /** Read the parts that changed; all of a point that is over by now. */
  async function readParts(parts) {
    const now = performance.now(),
      all = seen.all,
      { point, live } = app,
      went = isRunning();
    seen.all = false;
    if (all || (parts.has("overview") && now - seen.overview > OVERVIEW_MS)) {
      seen.overview = now;
      await readOverview();
    } else if (parts.has("overview")) seen.parts.add("overview");
    if (live && !app.live) pointing.setFollow(false);
    if (point === app.point && ((live && !app.live) || (went && !isRunning()))) return model.reread();
    if (!(all || parts.has("timeline") || parts.has("circuits"))) return;
    if (!isRunning()) return void (parts.has("timeline") && (await readRest()));
    const patient = all || now - seen.news > PATIENT_MS - LEAST_PAUSE_MS;
    if (app.follow) await readState();
    if (!patient) return void seen.parts.add("timeline");
    seen.news = now;
    await readNews();
    if (now - seen.strips > STRIPS_MS) {
      seen.strips = now;
      model.requests.strips.ask();
    }
  }

  /** Whether the selected point is under way. */
  function isRunning() {
    return record(model.pointEntry()).state === "running";
  }

  /** Whether the time line of the selected point did not arrive, or not all of it. */
  function lacks() {
    return app.point !== null && (model.loading() > 0 || !model.mine(app.timeline));
  }

  /** Ask again for a point that the server had not read to its end, or whose time line did not arrive. */
  async function readRest() {
    if (!lacks()) return;
    await model.requests.timeline.ask();
    model.requests.strips.ask();
    model.requests.state.ask();
    if (!app.whole) model.readMarks();
  }

  /** Read the overview; a point that began is shown where the present is followed. */
  async function readOverview() {
    const found = await app.source.overview();
    cost(() => {
      const before = app.overview;
      keepPoint(before, found);
      app.overviews = [found];
      app.overview = found;
      app.live = found.state === "live";
      if (JSON.stringify(before) !== JSON.stringify(found)) Railyard.emit("overview");
      const running = model.running();
      if (app.follow && running && running.number !== app.point) follow(running.number);
      else if (app.point === null && list(found.points).length) model.setPoint(found.points[0].number);
    });
  }

  /** Keep the point that is shown where the run has ended without it, so that the server does not know it any more. */
  function keepPoint(before, found) {
    const entry = list(record(before).points).find((point) => point.number === app.point),
      held = model.mine(app.timeline) ? app.timeline : null;
    if (!entry || !(held || entry.lost) || list(found.points).some((point) => point.number === app.point)) return;
    const end = Math.max(entry.duration || 0, record(held).duration || 0);
    found.points = [...list(found.points), { ...entry, state: "stopped", duration: end, counts: false, lost: true }];
    found.plans = { ...record(before.plans), ...record(found.plans) };
  }

  /** Show the point under way from its start. */
  function follow(number) {
    const entry = record(list(app.overview.points).find((point) => point.number === number)),
      span = entry.expected_s > 0 ? Math.min(FIRST_WINDOW_S, entry.expected_s) : FIRST_WINDOW_S;
    model.setPoint(number, { from: 0, to: span, t: 0 });
  }

  /** Read the part of the time line that may have changed, and put it after what is there. */
  async function readNews() {
    const { run, point } = app,
      held = model.mine(app.timeline) ? app.timeline : null;
    const late = LATE_WALL_S / (app.overview.scale?.time || 1);
    jump();
    const coarse = held?.thinned && held.end - held.start > 4 * (app.to - app.from),
      whole = !held || held.start > app.from || held.end < app.from || coarse;
    const from = whole ? app.from : Math.max(held.start, Math.min(held.end, app.now) - late);
    const px = Math.min(4000, Math.max(50, Math.round((app.width * (app.to - from)) / (app.to - app.from))));
    const read = await app.source.timeline(run, point, from, app.to, px);
    if (!read || point !== app.point) return;
    cost(() => {
      const same = !whole && list(held.kinds).join() === list(read.kinds).join();
      app.marks = derive.marks(app.marks, read);
      const joined = same ? derive.append(held, read) : read;
      app.timeline = Object.assign(joined, { run, forPoint: point, px });
      app.now = Math.max(app.now, read.duration || 0);
      Railyard.emit("duration");
      Railyard.emit("timeline");
    });
  }

  /** Move the window by half where the present has reached its end. */
  function jump() {
    if (!app.follow || app.now <= app.to) return;
    const span = app.to - app.from;
    model.setWindow(app.now - span / 2, app.now + span / 2, true);
  }

  /** Move the cursor to the present. */
  async function readState() {
    const { run, point } = app,
      now = app.now,
      read = await app.source.state(run, point, now);
    if (!read || point !== app.point || !app.follow) return;
    cost(() => {
      app.t = now;
      app.state = Object.assign(read, { run, forPoint: point });
      Railyard.emit("time");
      Railyard.emit("state");
    });
  }

  /** The server ends: keep what is shown, and say what it said. */
  function over(data) {
    let says = "";
    try {
      says = JSON.parse(data).says;
    } catch {
      /* it said nothing that can be read */
    }
    app.gone = true;
    app.live = false;
    pointing.setFollow(false);
    Railyard.emit("overview");
    Railyard.header.last(says || Railyard.header.gone());
  }

  /** The connection was lost: say so quietly, and when it is tried again; after some tries, how to see the run. */
  function lost(pause, tries) {
    if (tries <= TRIES)
      return Railyard.header.banner(`The server does not answer; trying again in ${(pause / 1000).toFixed(1)} s.`);
    if (!app.gone) {
      app.gone = true;
      Railyard.emit("overview");
    }
    Railyard.header.banner(Railyard.header.gone());
  }

  /** The connection stands: whatever was missed is read. */
  function back() {
    Railyard.header.banner("");
    seen.all = true;
    seen.parts.add("overview").add("timeline");
    if (app.live || app.gone || lacks()) plan();
    const returned = app.gone;
    app.gone = false;
    if (returned) Railyard.emit("overview");
  }

  /** Begin to follow, where the run is live. */
  function start() {
    app.source.listen({ heard, over, lost, back });
  }

  document.addEventListener("visibilitychange", () => seen.parts.size && plan());
  on("follow", () => {
    if (!app.follow) return;
    seen.all = true;
    seen.parts.add("overview").add("timeline");
    const running = model.running();
    if (running && (running.number !== app.point || app.whole)) follow(running.number);
    plan();
  });

  Railyard.live = { start, times };
})();
