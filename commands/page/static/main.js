"use strict";

(function () {
  const { app, byId, model, header, moment, timeline, emit, on } = Railyard;

  /** What tests and measurements read; nothing here changes what is shown. */
  Railyard.debug = Object.freeze({
    /** The window, the cursor and the point that are shown. */
    get window() {
      return {
        run: app.run,
        point: app.point,
        from: app.from,
        to: app.to,
        t: app.t,
        follow: app.follow,
        live: app.live,
        left: timeline.view.left,
        width: timeline.view.width,
      };
    },
    /** Names of the lanes from top to bottom, closed groups left out. */
    get lanes() {
      return timeline.laneRows().map((row) => row.lane.id);
    },
    /** Boxes of a lane inside the window: kind, x and width in pixels, start and end in seconds. */
    boxes(lane) {
      const read = timeline.current();
      return read ? Railyard.bars.boxes(read, lane, { from: app.from, to: app.to, width: timeline.view.width }) : [];
    },
    /** The last live update: milliseconds from the tick to the screen, and what drawing cost. */
    get tick() {
      return { ...Railyard.live.times };
    },
    /** Milliseconds from the start of the page until its first complete drawing; null before. */
    get firstPaint() {
      return firstPaint;
    },
    /** Errors that were caught. */
    get failures() {
      return Railyard.failures.slice();
    },
  });

  let firstPaint = null;

  /** Choose the runs, and show what the address names. */
  async function start() {
    header.setTheme(header.theme(), false);
    header.banner("Reading the run ...");
    app.source = await Railyard.source.open();
    app.overviews = await app.source.overviews();
    on("run", Railyard.looks.refresh);
    const asked = moment.read(location.hash);
    moment.restore();
    header.banner("");
    if (app.live && !(asked.to > asked.from) && app.view === "run") Railyard.pointing.setFollow(true);
    Railyard.live.start();
    requestAnimationFrame(() => setTimeout(() => (firstPaint = performance.now())));
  }

  byId("theme").addEventListener("click", () => header.setTheme(Railyard.looks.dark() ? "light" : "dark", true));
  byId("copy").addEventListener("click", () => moment.copy(byId("copy")));
  byId("skip").addEventListener("click", (e) => {
    e.preventDefault();
    timeline.parts.all.focus();
  });
  window
    .matchMedia("(prefers-color-scheme: dark)")
    .addEventListener("change", () => header.setTheme(header.theme(), false));
  on("theme", Railyard.looks.refresh);
  let resized = 0;
  window.addEventListener("resize", () => {
    cancelAnimationFrame(resized);
    resized = requestAnimationFrame(() => emit("resize"));
  });

  start().catch((error) => {
    header.banner(`The run cannot be shown: ${error.message || error}`);
    Railyard.note(String(error && error.stack ? error.stack : error));
  });
})();
