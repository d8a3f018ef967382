"use strict";

(function () {
  const { s, list, record, derive } = Railyard;

  /** Call `act(i, x, right)` for each bar of a lane inside the window, in pixels from its left edge and cut at both. */
  function each(bars, view, act) {
    if (!bars || !list(bars.s).length) return;
    const scale = view.width / (view.to - view.from);
    for (let i = derive.after(derive.reach(bars), view.from); i < bars.s.length && bars.s[i] < view.to; i += 1) {
      if (bars.e[i] <= view.from) continue;
      const x = Math.max(0, (bars.s[i] - view.from) * scale);
      act(i, x, Math.min(view.width, Math.max((bars.e[i] - view.from) * scale, x + 0.5)));
    }
  }

  /** Boxes of a lane in the window: kind, place and width in pixels, start and end in seconds. */
  function boxes(timeline, laneId, view) {
    const bars = record(timeline.bars)[laneId],
      found = [];
    each(bars, view, (i, x, right) => {
      found.push({ kind: timeline.kinds[bars.k[i]], x, width: right - x, start: bars.s[i], end: bars.e[i] });
    });
    return found;
  }

  /** The path of all bars of each kind in a lane; boxes that touch and are not wider than a pixel become one. */
  function paths(bars, view, height) {
    const made = [],
      open = [];
    const flush = (k) => {
      const [x, right] = open[k];
      made[k] = `${made[k] || ""}M${x.toFixed(1)} 0H${right.toFixed(1)}V${height}H${x.toFixed(1)}z`;
    };
    each(bars, view, (i, x, right) => {
      const k = bars.k[i],
        last = open[k];
      if (last && x - last[1] < 0.4 && (right - x < 1.5 || last[1] - last[0] < 1.5)) {
        last[1] = Math.max(last[1], right);
        return;
      }
      if (last) flush(k);
      open[k] = [x, right];
    });
    open.forEach((last, k) => last && flush(k));
    return made;
  }

  /** Order in which kinds of bars are drawn, those below others first. */
  function depth(kind) {
    if (derive.BELOW.has(kind)) return 0;
    return ["dark", "failed", "ask", "wait"].includes(kind) ? 2 : 1;
  }

  /** The bars of the lanes that can be seen, as one path for each lane and kind. */
  class Bars {
    constructor(place) {
      this.place = place;
      this.lanes = new Map();
    }

    /** Draw the bars of these rows for the window `view`; `top` is the height scrolled to. */
    draw(timeline, rows, view, top) {
      const kinds = list(timeline.kinds),
        seen = new Set();
      const sorted = kinds.map((kind, k) => k).sort((a, b) => depth(kinds[a]) - depth(kinds[b]));
      for (const row of rows) {
        if (row.kind !== "lane") continue;
        seen.add(row.lane.id);
        const held = this.lane(row.lane.id);
        const at = `translate(${view.left} ${row.y - top})`;
        if (held.at !== at) held.group.setAttribute("transform", (held.at = at));
        held.group.classList.toggle("tight", Boolean(row.tight));
        this.fill(held, paths(record(timeline.bars)[row.lane.id], view, Railyard.lanes.barHeight(row)), kinds, sorted);
      }
      for (const [id, held] of this.lanes) {
        if (seen.has(id)) continue;
        held.group.remove();
        this.lanes.delete(id);
      }
    }

    /** The group of a lane, made where it is not there. */
    lane(id) {
      let held = this.lanes.get(id);
      if (!held) {
        held = { group: s("g", { "data-lane": id }), paths: new Map(), at: "" };
        this.place.append(held.group);
        this.lanes.set(id, held);
      }
      return held;
    }

    /** Put the paths of a lane into its group; only those that changed are touched. */
    fill(held, made, kinds, sorted) {
      for (const k of sorted) {
        const path = held.paths.get(k),
          d = made[k] || "";
        if (path) {
          if (path.d !== d) path.node.setAttribute("d", (path.d = d));
        } else if (d) {
          const node = s("path.bar", { d, fill: Railyard.looks.fill(kinds[k]), "data-kind": kinds[k] });
          const flat = Railyard.looks.flat(kinds[k]);
          node.classList.toggle("pale", Railyard.looks.pale(kinds[k]));
          if (flat) node.style.setProperty("--flat", flat);
          node.classList.toggle("hatched", Boolean(flat));
          const above = sorted.slice(sorted.indexOf(k) + 1).find((other) => held.paths.has(other));
          held.group.insertBefore(node, held.paths.get(above)?.node || null);
          held.paths.set(k, { node, d });
        }
      }
    }

    /** Forget all paths: colours or kinds changed. */
    clear() {
      this.lanes.clear();
      this.place.textContent = "";
    }
  }

  Railyard.bars = { Bars, boxes };
})();
