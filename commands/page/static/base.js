"use strict";

/** The one global name of the page; every file adds a part to it. */
window.Railyard = { parts: {} };

(function () {
  const SVG = "http://www.w3.org/2000/svg";

  /** Set attributes and listeners of a node: `on` maps event names to functions, `text` is its text. */
  function dress(node, given) {
    for (const [key, value] of Object.entries(given || {})) {
      if (value === null || value === undefined || value === false) continue;
      if (key === "text") node.textContent = value;
      else if (key === "on") for (const [name, act] of Object.entries(value)) node.addEventListener(name, act);
      else node.setAttribute(key, value === true ? "" : String(value));
    }
    return node;
  }

  /** Append children; text is appended as text, nothing for null. */
  function fill(node, children) {
    for (const child of children.flat(2)) {
      if (child !== null && child !== undefined && child !== false) node.append(child);
    }
    return node;
  }

  /** A new HTML element. */
  function h(tag, given, ...children) {
    return fill(dress(document.createElement(tag), given), children);
  }

  /** A new SVG element. */
  function s(tag, given, ...children) {
    return fill(dress(document.createElementNS(SVG, tag), given), children);
  }

  /** Replace all children of a node. */
  function put(node, ...children) {
    node.textContent = "";
    return fill(node, children);
  }

  /** The element of the page with this id. */
  function byId(id) {
    return document.getElementById(id);
  }

  /** A list, whatever was given: data of other versions may lack one. */
  function list(value) {
    return Array.isArray(value) ? value : [];
  }

  /** An object, whatever was given. */
  function record(value) {
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
  }

  /** A text for people, whatever was given. */
  function words(value) {
    if (value === null || value === undefined) return "";
    return typeof value === "object" ? JSON.stringify(value) : String(value);
  }

  const tip = h("div", { id: "tip", role: "tooltip", hidden: true });
  let tipOwner = null;

  /** Show lines of text beside a point of the window; the first line is a heading. `owner` may hide them again. */
  function showTip(owner, lines, x, y) {
    const shown = lines.filter(Boolean);
    if (!shown.length) return hideTip(owner);
    tipOwner = owner;
    if (!tip.isConnected) document.body.append(tip);
    put(
      tip,
      shown.map((line, i) => h("div", { class: i ? "" : "tip-head", text: line })),
    );
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > window.innerWidth - 8 ? x - 14 - box.width : x + 14;
    const top = y + 16 + box.height > window.innerHeight - 8 ? y - 12 - box.height : y + 16;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, top)}px`;
  }

  /** Hide the lines that `owner` shows; of nobody: hide any. */
  function hideTip(owner) {
    if (owner === undefined || owner === tipOwner) tip.hidden = true;
  }

  /** Name a thing on hover and on focus: `lines()` gives the text at that moment. */
  function named(node, lines) {
    node.addEventListener("pointermove", (e) => showTip(node, lines(), e.clientX, e.clientY));
    node.addEventListener("pointerleave", () => hideTip(node));
    if (!node.hasAttribute("tabindex")) return node; // an SVG node that listens to focus would become a tab stop
    node.addEventListener("focus", () => {
      if (!node.matches(":focus-visible")) return;
      const box = node.getBoundingClientRect();
      showTip(node, lines(), box.left + box.width / 2, box.bottom - 8);
    });
    node.addEventListener("blur", () => hideTip(node));
    return node;
  }

  const said = h("div", { class: "sr", "aria-live": "polite" });

  /** Say a sentence to screen readers. */
  function say(sentence) {
    if (!said.isConnected) document.body.append(said);
    said.textContent = sentence;
  }

  const MOST_FAILURES = 50;

  /** Keep the text of an error, the last ones only. */
  function note(text) {
    Railyard.failures.push(text);
    Railyard.failures.splice(0, Railyard.failures.length - MOST_FAILURES);
  }

  const listeners = {};

  /** Call `act` whenever something named `name` changed. */
  function on(name, act) {
    (listeners[name] = listeners[name] || []).push(act);
  }

  /** Tell that something changed; a part that fails does not keep the others from it. */
  function emit(name) {
    for (const act of listeners[name] || []) {
      try {
        act();
      } catch (error) {
        note(`${name}: ${error && error.stack ? error.stack : error}`);
        console.error(name, error);
      }
    }
  }

  Object.assign(Railyard, {
    h,
    s,
    put,
    byId,
    list,
    record,
    words,
    showTip,
    hideTip,
    named,
    say,
    note,
    on,
    emit,
    failures: [],
  });
})();
