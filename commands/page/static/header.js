"use strict";

(function () {
  const { h, put, byId, list, record, words, app, on, model } = Railyard;
  const STATES = {
    live: "live",
    complete: "complete",
    stopped: "stopped early",
    killed: "ended without a word",
    predicted: "predicted",
  };
  const KEPT = "railyard-theme";

  /** Colour theme that the reader chose, or that the system asks for. */
  function theme() {
    let chosen = null;
    try {
      chosen = localStorage.getItem(KEPT);
    } catch {
      /* a page from a file may keep nothing */
    }
    if (chosen === "light" || chosen === "dark") return chosen;
    return window.matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  }

  /** Draw the page in a theme, and keep the choice. */
  function setTheme(name, keep) {
    document.documentElement.dataset.theme = name;
    if (keep) {
      try {
        localStorage.setItem(KEPT, name);
      } catch {
        /* it holds for this page then */
      }
    }
    byId("theme").textContent = name === "dark" ? "Light" : "Dark";
    byId("theme").setAttribute("aria-label", `Change to ${name === "dark" ? "light" : "dark"} colours`);
    Railyard.emit("theme");
  }

  /** Name, experiment, state and scale of the run. */
  function drawHeader() {
    const seen = app.overview,
      state = words(seen.state) || "unknown";
    const both =
      app.view === "comparison" ? app.overviews.map((each) => words(each.name)).join(" and ") : words(seen.name);
    document.title = `${both || "run"} · Railyard`;
    put(byId("name"), both);
    put(byId("experiment"), words(seen.experiment));
    const chip = byId("state");
    const progress = record(seen.progress),
      part = progress.measured < progress.planned;
    const then = app.source?.embedded ? "written" : app.gone ? "read last" : "";
    const says = state === "live" && then ? `under way when this was ${then}` : STATES[state] || state;
    chip.dataset.state = state === "live" && then ? "last" : state;
    put(chip, says, part ? `, ${progress.measured} of ${progress.planned} points` : "");
    put(byId("scale"), words(record(seen.scale).says));
    byId("scale").title = words(record(seen.scale).says);
  }

  /** A sentence without the kind of the stamp that it repeats at its beginning. */
  function without(says, kind) {
    const rest = says.toUpperCase().startsWith(kind.toUpperCase())
      ? says.slice(kind.length).replace(/^[:,.\s]+/, "")
      : says;
    return rest.slice(0, 1).toUpperCase() + rest.slice(1);
  }

  /** The stamps of a run with its name, and the sentences about what is missing in it. */
  function stampsOf(seen, name) {
    const stamps = model.stamps(seen).map((stamp) => {
      const [kind, says] = [words(stamp.kind), words(stamp.says)];
      return h("div.stamp", { role: "alert" }, h("strong", name + kind), h("span", without(says, kind)));
    });
    const notes = list(seen.notes).map((note) => h("div.note", name + words(note)));
    if (seen.unreadable > 0) {
      const lines = Railyard.format.counted(seen.unreadable, "line"),
        says = `${lines} of the events could not be read and ${seen.unreadable === 1 ? "is" : "are"} left out.`;
      notes.push(h("div.note", { id: name ? null : "unreadable" }, name + says));
    }
    return [...stamps, ...notes];
  }

  let stamped = "";

  /** The stamps of what is shown, of one run or of both; they are made again, and read out, only if they changed. */
  function drawStamps() {
    const both = app.view === "comparison" && app.overviews.length > 1;
    const runs = both ? app.overviews.map((seen, i) => [seen, `${"ABCDEFGH"[i]}: `]) : [[app.overview, ""]];
    const now = JSON.stringify(
      runs.map(([seen, name]) => [name, model.stamps(seen), list(seen.notes), seen.unreadable]),
    );
    if (now === stamped) return;
    stamped = now;
    put(byId("stamps"), ...runs.map(([seen, name]) => stampsOf(seen, name)));
  }

  /** One tab: a run or the comparison. */
  function tab(label, chosen, act) {
    return h(
      "button",
      {
        role: "tab",
        "aria-selected": String(chosen),
        tabindex: chosen ? 0 : -1,
        onclick: act,
        onkeydown: (e) => {
          const to = { ArrowRight: "nextElementSibling", ArrowLeft: "previousElementSibling" }[e.key];
          if (!to || !e.currentTarget[to]) return;
          e.stopPropagation();
          e.currentTarget[to].focus();
          e.currentTarget[to].click();
        },
      },
      label,
    );
  }

  /** Tabs of two runs and their comparison; none for one run. */
  function drawTabs() {
    const bar = byId("tabs"),
      one = app.view === "run";
    const kept = bar.contains(document.activeElement);
    bar.hidden = app.overviews.length < 2;
    if (bar.hidden) return;
    const runs = app.overviews.map((seen, i) =>
      tab(`${"ABCDEFGH"[i]} · ${words(seen.name)}`, one && app.run === i, () => {
        model.setRun(i, app.point);
        model.setView("run");
      }),
    );
    const compared = tab("Comparison", !one, () => model.setView("comparison"));
    put(bar, runs, compared);
    if (kept) bar.querySelector('[aria-selected="true"]')?.focus();
  }

  /** Show the view of a run or the comparison. */
  function drawView() {
    byId("run-view").hidden = app.view !== "run";
    byId("comparison").hidden = app.view === "run";
    drawHeader();
    drawStamps();
    drawTabs();
  }

  let over = false;

  /** A quiet sentence below the header about the connection; none to hide it. */
  function banner(sentence) {
    if (over) return;
    byId("banner").hidden = !sentence;
    put(byId("banner"), sentence || "");
  }

  /** The last sentence of the banner, which stays. */
  function last(sentence) {
    over = false;
    banner(sentence);
    over = true;
  }

  /** The sentence about a server that is gone: what is shown, and how to see the run again. */
  function gone() {
    const again = `railyard watch with the folder ${words(app.overview.name)} shows the run again`;
    return `The server of this page is gone; this is what it showed last. ${again}.`;
  }

  on("overview view", drawView);

  Railyard.trouble = (error) => {
    Railyard.note(String(error));
    const silent = navigator.onLine === false || error instanceof TypeError;
    if (app.gone) banner(gone());
    else banner(silent ? "The server does not answer." : String(error.message || error));
  };
  Railyard.header = { theme, setTheme, banner, last, gone };
})();
