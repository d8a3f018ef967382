"use strict";

(function () {
  const { there, list, record } = Railyard;
  const BELOW = new Set(["compute", "train", "stage", "start", "other"]);
  const reaches = new WeakMap();

  /** For each bar of a lane, the latest end of the bars up to it: bars of a lane may overlap. */
  function reach(bars) {
    let found = reaches.get(bars);
    if (!found) {
      let latest = -Infinity;
      found = Float64Array.from(list(bars.e), (end) => (latest = Math.max(latest, end)));
      reaches.set(bars, found);
    }
    return found;
  }

  /** Index of the first number of a rising list that is greater than `value`. */
  function after(rising, value) {
    let low = 0,
      high = rising.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rising[middle] > value) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** Index of the bar of a lane at time `t`, the uppermost one where bars overlap; -1 if there is none. */
  function barAt(timeline, laneId, t) {
    const bars = record(timeline.bars)[laneId];
    if (!bars) return -1;
    let best = -1;
    for (let i = after(reach(bars), t); i < bars.s.length && bars.s[i] <= t; i += 1) {
      if (bars.e[i] < t) continue;
      const lower = best >= 0 && BELOW.has(timeline.kinds[bars.k[i]]) && !BELOW.has(timeline.kinds[bars.k[best]]);
      if (!lower) best = i;
    }
    return best;
  }

  /** What a bar of a lane is: kind, label, times, bytes, step, peer. */
  function bar(timeline, laneId, i) {
    const bars = record(timeline.bars)[laneId];
    const at = (key, other) => (bars[key] && bars[key][i] !== undefined ? bars[key][i] : other);
    return {
      kind: list(timeline.kinds)[at("k", -1)] || "",
      label: list(timeline.labels)[at("l", -1)] || "",
      start: bars.s[i],
      end: bars.e[i],
      bytes: at("b", 0),
      step: at("st", -1),
      peer: at("p", 0),
      several: Boolean(timeline.thinned) && at("l", -1) === 0, // the first name is that of bars joined in a pixel
    };
  }

  /** The bar of a lane at time `t`, or null. */
  function found(timeline, laneId, t) {
    const i = barAt(timeline, laneId, t);
    return i < 0 ? null : bar(timeline, laneId, i);
  }

  /** Note what a port does at `t` in a state: its circuit (once a pair), dark, failed, or too much to be told. */
  function portState(state, lane, now) {
    if (now.several) {
      state.unsure += 1;
      return;
    }
    const into = (name, value) => (state[name][lane.group] = state[name][lane.group] || []).push(value);
    if (now.kind === "dark" || now.kind === "failed") into(now.kind, lane.port);
    else if (now.peer > lane.port) {
      into("circuits", { a: lane.port, b: now.peer, kind: now.kind, group: now.label, since: now.start });
    }
  }

  /** Ranks that had failed by `t`: nobody replaces the rank itself, only its work. */
  function deadAt(timeline, t) {
    const deadly = (mark) => mark.t <= t && (mark.kind === "fault" || mark.kind === "failed");
    return [
      ...new Set(
        list(timeline.marks)
          .filter(deadly)
          .flatMap((mark) => list(mark.ranks)),
      ),
    ];
  }

  /** The state of the fabric at time `t` as the bars of a time line tell it, without rates of links. */
  function state(timeline, t) {
    const made = { t, circuits: {}, dark: {}, failed: {}, dead: [], links: {}, ranks: {}, waits: [], unsure: 0 };
    if (!timeline) return made;
    for (const lane of list(timeline.lanes)) {
      const now = found(timeline, lane.id, t);
      if (!now) continue;
      if (there(lane.port)) portState(made, lane, now);
      else if (there(lane.rank)) made.ranks[lane.rank] = { kind: now.kind, label: now.label };
    }
    made.dead = deadAt(timeline, t);
    return made;
  }

  /** Kinds of bars that a time line shows, in the order of its list. */
  function kindsShown(timeline) {
    const used = new Set();
    for (const bars of Object.values(record(timeline.bars))) for (const k of list(bars.k)) used.add(k);
    return list(timeline.kinds).filter((_, i) => used.has(i));
  }

  /** Bars of `newer` put after those of `older` that end before time `from`; both of one lane. */
  function joined(older, newer, from, remap) {
    const before = [...list(older.s).keys()].filter((i) => older.e[i] < from),
      made = {};
    for (const key of ["s", "e", "k", "l", "b", "st", "p"]) {
      const added = newer[key] || list(newer.s).map(() => 0);
      made[key] = before.map((i) => (older[key] ? older[key][i] : 0)).concat(key === "l" ? added.map(remap) : added);
    }
    return made;
  }

  /** Marks of a point: those known, with the part that a time line reaches over as it tells it. */
  function marks(known, read) {
    const name = (mark) => JSON.stringify([mark.t, mark.kind, mark.rail, mark.ranks, mark.ports]),
      told = new Set(list(read.marks).map(name));
    const outside = (mark) => mark.t >= read.end || (mark.end ?? mark.t) < read.start;
    const rest = list(known).filter((mark) => outside(mark) && !told.has(name(mark)));
    return rest.concat(list(read.marks)).sort((a, b) => a.t - b.t);
  }

  /** A time line with its part from `newer.start` on replaced by `newer`, which is more recent. */
  function append(older, newer) {
    const labels = list(older.labels).slice(),
      known = new Map(labels.map((label, i) => [label, i]));
    const remap = (i) => {
      const label = newer.labels[i];
      if (!known.has(label)) known.set(label, labels.push(label) - 1);
      return known.get(label);
    };
    const bars = {};
    for (const lane of list(newer.lanes)) {
      bars[lane.id] = joined(record(older.bars)[lane.id] || {}, record(newer.bars)[lane.id] || {}, newer.start, remap);
    }
    return {
      ...newer,
      labels,
      steps: [...list(older.steps).filter((step) => step.e < newer.start), ...list(newer.steps)],
      bars,
      start: Math.min(older.start, newer.start),
      thinned: older.thinned || newer.thinned,
    };
  }

  Railyard.derive = { reach, after, found, state, kindsShown, append, marks, BELOW };
})();
