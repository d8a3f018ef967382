"use strict";

/** The one global name of the page; every file adds a part to it. */
window.Railyard = {};

(function () {
  /** Set attributes of a node; a function listens to the event that it is named for, such as onclick. */
  function dress(node, given) {
    for (const [key, value] of Object.entries(given)) {
      if (typeof value === "function") node.addEventListener(key.slice(2), value);
      else if (there(value) && value !== false) node.setAttribute(key, value === true ? "" : String(value));
    }
    return node;
  }

  /** Append children; text is appended as text, nothing for null and false. */
  function fill(node, children) {
    node.append(...children.flat(2).filter((child) => there(child) && child !== false));
    return node;
  }

  /** A maker of elements: of the tag with its classes, such as "p.quiet", attributes if there are any, children. */
  function maker(create) {
    return (kind, ...rest) => {
      const [tag, ...classes] = kind.split("."),
        node = create(tag);
      if (classes.length) node.setAttribute("class", classes.join(" "));
      return fill(rest[0]?.constructor === Object ? dress(node, rest.shift()) : node, rest);
    };
  }

  const h = maker((tag) => document.createElement(tag)),
    s = maker((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag));

  /** A table with room to scroll sideways: the cells of its head where it has one, its rows, and its caption. */
  function table(kind, head, rows, caption) {
    return h("div.scroll-x", h(`table.${kind}`, caption, head && h("thead", h("tr", head)), h("tbody", rows)));
  }

  /** Replace all children of a node. */
  function put(node, ...children) {
    node.replaceChildren();
    return fill(node, children);
  }

  /** Draw a place anew with `act`; the keyboard stays on the thing with the same data-`key`. */
  function keepFocus(place, key, act) {
    const kept = place.contains(document.activeElement) && document.activeElement.dataset[key];
    act();
    const again = kept && [...place.querySelectorAll(`[data-${key}]`)].find((each) => each.dataset[key] === kept);
    if (again) again.focus({ preventScroll: true });
  }

  /** The element of the page with this id. */
  function byId(id) {
    return document.getElementById(id);
  }

  /** Whether there is a value. */
  function there(value) {
    return value !== null && value !== undefined;
  }

  /** A list, whatever was given: data of other versions may lack one. */
  function list(value) {
    return Array.isArray(value) ? value : [];
  }

  /** An object, whatever was given. */
  function record(value) {
    return there(value) && typeof value === "object" && !Array.isArray(value) ? value : {};
  }

  /** Things by what `key` gives for each, in their order. */
  function grouped(things, key) {
    const found = new Map();
    for (const each of things) {
      if (!found.has(key(each))) found.set(key(each), []);
      found.get(key(each)).push(each);
    }
    return found;
  }

  /** A text for people, whatever was given. */
  function words(value) {
    return typeof value === "object" && value ? JSON.stringify(value) : String(value ?? "");
  }

  const tip = h("div", { id: "tip", role: "tooltip", hidden: true });
  let tipOwner = null;

  /** Show lines of text beside a point of the window; the first line is a heading. `owner` may hide them again. */
  function showTip(owner, lines, x, y) {
    const shown = lines.filter(Boolean);
    if (!shown.length) return hideTip(owner);
    tipOwner = owner;
    if (!tip.isConnected) document.body.append(tip);
    put(tip, ...shown.map((line, i) => h(i ? "div" : "div.tip-head", line)));
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

  const said = h("div.sr", { "aria-live": "polite" });

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

  /** Call `act` whenever something of these names changed. */
  function on(names, act) {
    for (const name of names.split(" ")) (listeners[name] ||= []).push(act);
  }

  /** Tell that something changed; a part that fails does not keep the others from it. */
  function emit(name) {
    for (const act of listeners[name] || []) {
      try {
        act();
      } catch (error) {
        note(`${name}: ${error?.stack || error}`);
        console.error(name, error);
      }
    }
  }

  Object.assign(Railyard, {
    h,
    s,
    dress,
    table,
    put,
    keepFocus,
    byId,
    there,
    list,
    record,
    grouped,
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
