"use strict";

(function () {
  const { app, model, on } = Railyard;

  /** A number of the address with as many digits as tell 1/10000 of the window apart. */
  function short(value) {
    const digits = Math.max(0, Math.min(9, Math.ceil(4 - Math.log10(Math.max(1e-9, app.to - app.from)))));
    return String(Number(value.toFixed(digits)));
  }

  /** The part of the address that names what is shown now. */
  function here() {
    if (app.view === "comparison") return "#view=comparison";
    if (app.point === null) return `#run=${app.run}`;
    return `#run=${app.run}&point=${app.point}&from=${short(app.from)}&to=${short(app.to)}&t=${short(app.t)}`;
  }

  /** What the address names; what it does not name, or names wrongly, is left out. */
  function read(hash) {
    const given = new URLSearchParams(String(hash).replace(/^#/, "")),
      found = {};
    for (const key of ["run", "point", "from", "to", "t"]) {
      const value = given.get(key);
      if (value !== null && value !== "" && isFinite(Number(value))) found[key] = Number(value);
    }
    if (given.get("view") === "comparison") found.view = "comparison";
    return found;
  }

  /** Show what the address names. */
  function restore() {
    const at = read(location.hash);
    const nothing = at.run === undefined && at.point === undefined;
    if ((at.view === "comparison" || nothing) && app.overviews.length > 1) {
      model.setRun(0);
      return model.setView("comparison");
    }
    model.setRun(at.run || 0, at.point, at);
    model.setView("run");
  }

  /** Write what is shown into the address, without a new entry in the history. */
  function write() {
    if (app.live && app.follow) return;
    const now = here();
    if (location.hash !== now) history.replaceState(null, "", now);
  }

  /** Copy the link of this moment; where the clipboard is closed, the link is shown to be copied by hand. */
  async function copy(button) {
    const hash = here(),
      link = location.href.replace(/#.*$/, "") + hash;
    history.replaceState(null, "", hash);
    const before = button.textContent;
    try {
      await navigator.clipboard.writeText(link);
      button.textContent = "Copied";
      Railyard.say("The link of this moment was copied.");
    } catch {
      window.prompt("Link of this moment", link);
    }
    setTimeout(() => (button.textContent = before), 1500);
  }

  on("settled", write);
  window.addEventListener("hashchange", restore);

  Railyard.moment = { read, restore, copy };
})();
