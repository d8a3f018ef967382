"use strict";

(function () {
  const { list, record, emit, on } = Railyard;
  const LEAST_SPAN_S = 1e-7,
    SIDES = 1,
    LAST_SIDES = 2,
    COARSE_PX = 20;

  /** What the page shows: runs, the point, the window of time [from, to], the moment t, and data read for them. */
  const app = {
    source: null,
    run: 0,
    view: "run",
    overviews: [],
    overview: {},
    point: null,
    from: 0,
    to: 1,
    t: 0,
    follow: false,
    whole: true,
    live: false,
    gone: false,
    now: 0,
    timeline: null,
    strips: null,
    state: null,
    marks: [],
    width: 1000,
  };

  /** One request at a time: those made meanwhile become one, with the last arguments. */
  class OneInFlight {
    constructor(act) {
      this.act = act;
      this.busy = null;
      this.next = null;
    }

    ask(...given) {
      this.next = given;
      if (!this.busy) this.busy = this.run().finally(() => (this.busy = null));
      return this.busy;
    }

    async run() {
      while (this.next) {
        const given = this.next;
        this.next = null;
        try {
          await this.act(...given);
        } catch (error) {
          Railyard.trouble(error);
        }
      }
    }
  }

  /** The stamps of a run. One that goes on is not yet whole, which the header says; its page has no stamp for it. */
  function stamps(overview = app.overview) {
    const goesOn = overview.state === "live" && app.source && !app.source.embedded;
    return list(overview.stamps).filter((stamp) => !(goesOn && stamp.kind === "PARTIAL"));
  }

  /** The entry of the selected point in the overview. */
  function pointEntry() {
    return list(app.overview.points).find((point) => point.number === app.point) || null;
  }

  /** Numbers of all points. */
  function numbers() {
    return list(app.overview.points).map((point) => point.number);
  }

  /** The entry of the point under way, if there is one. */
  function running() {
    return list(app.overview.points).find((point) => point.state === "running");
  }

  /** Duration of the selected point so far, in seconds. */
  function duration() {
    const read = app.timeline?.point === app.point ? app.timeline?.duration : 0;
    return Math.max(pointEntry()?.duration || 0, read || 0, app.live ? app.now : 0) || 1;
  }

  /** Whether data was read for the run and the point that are shown. */
  function mine(read) {
    return read && read.run === app.run && read.forPoint === app.point;
  }

  /** How much of the events of the selected point the server has read, where that is not all; else 0. */
  function loading() {
    const share = mine(app.timeline) ? app.timeline.loaded : 1;
    return share < 1 ? Math.max(share, 1e-9) : 0;
  }

  /** Whether the time line that was read reaches over [from, to] and is fine enough for it. */
  function covers(read, from, to) {
    const end = Math.min(to, read.duration || to),
      slack = (to - from) * 1e-6;
    return read.start <= Math.max(0, from) + slack && read.end >= end - slack;
  }

  /** Whether bars of the time line that was read are at most a pixel and a half of this window too coarse. */
  function fine(read, from, to) {
    if (app.source.embedded || !read.thinned) return true;
    return read.px / Math.max(1e-12, read.end - read.start) >= (0.66 * app.width) / (to - from);
  }

  /** Whether less than half a window is left on a side on which the point goes on. */
  function near(read, from, to) {
    if (app.source.embedded) return false;
    const side = (to - from) / 2;
    return read.start > Math.max(0, from - side) || read.end < Math.min(read.duration, to + side);
  }

  /** Whether only the page still has the selected point. */
  function lost() {
    return record(pointEntry()).lost === true;
  }

  const timelineRequest = new OneInFlight(async (sides = SIDES) => {
    if (lost()) return;
    const { from, to, run, point } = app,
      span = to - from,
      whole = duration();
    const start = Math.max(0, from - sides * span),
      end = Math.min(whole, to + sides * span);
    const px = Math.round(Math.min(6000, (app.width * Math.max(end - start, span * 0.1)) / span));
    const read = await app.source.timeline(run, point, start, Math.max(end, to), px);
    take("timeline", read, { run, forPoint: point, px });
  });

  const stripsRequest = new OneInFlight(async () => {
    if (lost()) return;
    const { from, to, run, point } = app,
      span = to - from;
    const read = await app.source.strips(run, point, Math.max(0, from - span), to + span, Math.round(app.width * 1.5));
    take("strips", read, { run, forPoint: point, from: Math.max(0, from - span), to: to + span, span });
  });

  const stateRequest = new OneInFlight(async () => {
    const { run, point, t } = app,
      alone = (app.gone || lost()) && mine(app.timeline);
    if (lost() && !alone) return;
    const read = alone ? Railyard.derive.state(app.timeline, t) : await app.source.state(run, point, t);
    take("state", read, { run, forPoint: point });
  });

  /** Keep what was read, unless another point was chosen meanwhile. */
  function take(name, read, about) {
    if (about.run !== app.run || about.forPoint !== app.point) return;
    app[name] = read ? Object.assign(read, about) : null;
    if (name === "timeline" && read) app.marks = Railyard.derive.marks(app.marks, read);
    if (name === "timeline" && app.whole && !app.follow) showAll();
    if (name === "timeline") emit("duration");
    emit(name);
  }

  /** Read what happened in the whole point, where the window shows a part of it. */
  async function readMarks() {
    const { run, point } = app;
    if (lost()) return;
    const read = await app.source.timeline(run, point, 0, Math.max(app.to, duration()), COARSE_PX).catch(() => null);
    if (!read || run !== app.run || point !== app.point) return;
    app.marks = Railyard.derive.marks(app.marks, read);
    emit("marks");
  }

  /** Show the whole point, whose duration was not known before, and its middle. */
  function showAll() {
    const whole = duration();
    if (Math.abs(whole - app.to) < 1e-9) return;
    [app.from, app.to, app.t] = [0, whole, whole / 2];
    emit("window");
    emit("time");
    stateRequest.ask();
    readTimeline();
    readStrips();
  }

  /** Read the time line where what is there does not do for the window, or soon will not. */
  function readTimeline() {
    const read = app.timeline,
      { from, to } = app;
    const missing = !mine(read) || !covers(read, from, to) || !fine(read, from, to);
    if (app.point !== null && (missing || near(read, from, to))) timelineRequest.ask();
  }

  /** Read the strip charts where they do not reach over the window, or are too coarse for it. */
  function readStrips() {
    const read = app.strips,
      { from, to } = app;
    const there =
      mine(read) && (app.source.embedded || (read.from <= Math.max(0, from) && read.to >= Math.min(to, duration())));
    const coarse = there && !app.source.embedded && read.span > 1.5 * (to - from);
    if (app.point !== null && (!there || coarse)) stripsRequest.ask();
  }

  /** Keep a window inside the point, without changing how long it is unless it is too long. */
  function inside(from, to) {
    const whole = Math.max(duration(), app.follow ? app.to : 0);
    const span = Math.min(Math.max(to - from, LEAST_SPAN_S), whole);
    const start = Math.min(Math.max(0, from), Math.max(0, whole - span));
    return [start, start + span];
  }

  let frame = 0,
    settle = 0;

  /** Show the window [from, to]; it is drawn in the next frame, and data follows as needed. */
  function setWindow(from, to, free) {
    const [start, end] = free ? [from, to] : inside(from, to);
    if (start === app.from && end === app.to) return;
    app.whole = false;
    app.from = start;
    app.to = end;
    if (!frame) frame = requestAnimationFrame(drawFrame);
  }

  /** Draw the window in its frame, and read what it needs. */
  function drawFrame() {
    drawWindow();
    if (!app.follow) readTimeline();
  }

  /** Tell that the window and the cursor stand still, when they have for a while. */
  function settleSoon() {
    clearTimeout(settle);
    settle = setTimeout(() => emit("settled"), 150);
  }

  /** Draw the window that was set last. */
  function drawWindow() {
    cancelAnimationFrame(frame);
    frame = 0;
    emit("window");
    settleSoon();
  }

  /** Move the cursor to time `t`. */
  function setTime(t) {
    const then = Math.min(Math.max(0, t), duration());
    if (then === app.t && mine(app.state)) return;
    app.t = then;
    emit("time");
    if (app.point !== null) stateRequest.ask();
    settleSoon();
  }

  /** Move the cursor to time `t`, and the window around it where it does not show it. */
  function showTime(t) {
    const span = app.to - app.from;
    if (t < app.from || t > app.to) setWindow(t - span / 2, t + span / 2);
    setTime(t);
  }

  /** Show a point as a whole, or the window and the moment given. */
  function setPoint(number, given) {
    const at = record(given);
    if (number !== app.point) app.now = 0;
    app.point = number;
    app.whole = !(at.to > at.from);
    if (!(lost() && mine(app.timeline))) {
      app.timeline = app.strips = app.state = null;
      app.marks = [];
    }
    const whole = duration();
    [app.from, app.to] = at.to > at.from ? [at.from, at.to] : [0, whole];
    app.t = at.t >= 0 ? at.t : whole / 2;
    emit("point");
    emit("window");
    if (number === null) return;
    readAll();
    emit("settled");
  }

  /** Read all of the selected point, `sides` windows on each side of the one that is shown. */
  function readAll(sides) {
    timelineRequest.ask(sides);
    stripsRequest.ask();
    stateRequest.ask();
    if (!app.whole) readMarks();
  }

  /** Read all of the selected point again, and more around the window, as the server may end soon.
   *
   * What is shown stays until the new data is there.
   */
  function reread() {
    const end = record(pointEntry()).duration;
    if (end > 0 && app.to > end) setWindow(...(app.from < end ? [app.from, end] : [0, end]), true);
    if (end > 0 && app.t > end) app.t = end;
    if (frame) drawWindow(); // at once: the usual read after it may replace the wider one below
    readAll(LAST_SIDES);
  }

  /** Verdicts of the selected point: where a row has repeats, those of the repeat that the point is. */
  function verdicts() {
    return list(app.overview.verdicts).filter((each) => list(each.points).includes(app.point));
  }

  /** What distinguishes the selected point from others of its title: which repeat it is, or that it does not count. */
  function marking() {
    const given = record(verdicts().find((each) => each.repeats > 1)),
      entry = record(pointEntry());
    if (entry.counts === false && entry.state !== "running") return "does not count";
    return given.repeat ? `repeat ${given.repeat} of ${given.repeats}` : "";
  }

  /** Number of the point to show first: one that counts, with optical switches where there are any. */
  function firstOf(all) {
    const plans = record(app.overview.plans),
      counting = all.filter((point) => point.counts !== false),
      points = counting.length ? counting : all;
    const optical = points.find((point) => list(record(plans[point.plan]).nodes).some((node) => node.kind === "ocs"));
    return (optical || record(points[0])).number ?? null;
  }

  /** Show run number `run`, and its point `number` (default: its first) at a moment. */
  function setRun(run, number, given) {
    app.run = app.overviews[run] ? run : 0;
    app.overview = record(app.overviews[app.run]);
    app.live = app.overview.state === "live" && !app.source.embedded;
    const first = running() ? running().number : firstOf(list(app.overview.points));
    emit("run");
    emit("overview");
    setPoint(numbers().includes(number) ? number : first, given);
  }

  /** Show the view of a run, or the comparison. */
  function setView(view) {
    app.view = view;
    emit("view");
    emit("settled");
  }

  on("settled", readStrips);

  Railyard.app = app;
  Railyard.model = {
    OneInFlight,
    pointEntry,
    numbers,
    running,
    stamps,
    verdicts,
    marking,
    duration,
    mine,
    loading,
    lost,
    readMarks,
    reread,
    setWindow,
    setTime,
    showTime,
    setPoint,
    setRun,
    setView,
    requests: { timeline: timelineRequest, strips: stripsRequest, state: stateRequest },
  };
})();
