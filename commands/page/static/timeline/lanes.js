"use strict";

(function () {
  const { s, put, keepFocus, list, words, named, format } = Railyard;
  const HEIGHT = { group: 20, port: 10.5, other: 17 },
    GAP = { port: 2.5, dense: 1.5, other: 4 },
    BELOW_GROUP = 6;
  const DENSE_FROM = 25,
    DENSE = 6.5,
    NAMED_EVERY = 4;
  const collapsed = new Set();

  /** Order of lanes in a group: what ranks do, then the circuits of their ports. */
  function order(lane) {
    return lane.kind === "port" ? 1 : 0;
  }

  /** Lanes by group, in the order in which the groups come. */
  function groups(lanes) {
    const found = Railyard.grouped(list(lanes), (lane) => words(lane.group));
    for (const mine of found.values()) mine.sort((a, b) => order(a) - order(b));
    return found;
  }

  /** Rows from top to bottom, each with its place and height: a heading for each named group, then its lanes. */
  function layout(lanes) {
    const rows = [];
    let y = 0;
    const add = (row, height) => {
      rows.push({ ...row, y, height });
      y += height;
    };
    for (const [name, mine] of groups(lanes)) {
      if (name) add({ kind: "group", name, lanes: mine }, HEIGHT.group);
      if (name && collapsed.has(name)) continue;
      const ports = mine.filter((lane) => lane.kind === "port"),
        dense = ports.length >= DENSE_FROM;
      for (const lane of mine) {
        const tight = dense && lane.kind === "port";
        const unnamed = tight && ports.indexOf(lane) % NAMED_EVERY !== 0;
        add({ kind: "lane", lane, tight, unnamed }, tight ? DENSE : HEIGHT[lane.kind] || HEIGHT.other);
      }
      y += name ? BELOW_GROUP : 0;
    }
    return { rows, height: Math.ceil(y) };
  }

  /** Height of the bars of a row. */
  function barHeight(row) {
    return row.height - (row.tight ? GAP.dense : GAP[row.lane.kind] || GAP.other);
  }

  /** Rows that can be seen between two heights. */
  function visible(rows, top, bottom) {
    return rows.filter((row) => row.y + row.height > top && row.y < bottom);
  }

  /** What a group holds, in words. */
  function groupSays(row) {
    const count = (kind) => row.lanes.filter((lane) => lane.kind === kind).length,
      ports = count("port"),
      rest = row.lanes.length - ports,
      says = rest ? [format.counted(rest, count("rank") === rest ? "rank" : "lane")] : [];
    return says.concat(ports ? format.counted(ports, "port") : []).join(", ");
  }

  /** Open or close a group. */
  function toggle(name) {
    if (!collapsed.delete(name)) collapsed.add(name);
    Railyard.emit("lanes");
  }

  /** Close all groups but the first, or open all. */
  function toggleAll(lanes) {
    const names = [...groups(lanes).keys()].filter(Boolean);
    if (collapsed.size) collapsed.clear();
    else names.slice(1).forEach((name) => collapsed.add(name));
    Railyard.emit("lanes");
  }

  /** The heading of a group: a button that opens and closes it. */
  function heading(row, width, y) {
    const open = !collapsed.has(row.name);
    const act = (e) => {
      if (e.type === "keydown" && e.key !== "Enter" && e.key !== " ") return;
      e.preventDefault();
      e.stopPropagation();
      toggle(row.name);
    };
    const head = s(
      "g.group",
      {
        role: "button",
        tabindex: 0,
        "aria-expanded": String(open),
        "data-group": row.name,
        "aria-label": `${row.name}: ${groupSays(row)}`,
        onclick: act,
        onkeydown: act,
      },
      s("rect", { x: 0, y, width, height: row.height }),
      s("path.arrow", { d: open ? `M4 ${y + 7.5}h8l-4 5z` : `M5.5 ${y + 6}v8l5 -4z` }),
      s("text.group-name", { x: 16, y: y + 14 }, row.name),
    );
    return named(head, () => [row.name, groupSays(row)]);
  }

  /** The name of a lane, in the end of a gutter, a short one where that is narrow. */
  function laneName(row, y, gutter) {
    const small = row.lane.kind === "port",
      name = words(row.lane.name),
      short = name.replace(/^rank /, "r ").replace(/^port (\d+).*/, "p $1");
    const at = { x: gutter - 6, y: y + row.height / 2 + (small ? 2.5 : 3) };
    return s(small ? "text.lane-name.small" : "text.lane-name", at, gutter < 70 ? short : name);
  }

  /** Draw the names beside the rows that can be seen. */
  function drawNames(place, rows, top, gutter, width) {
    const nameOf = (row) =>
      row.kind === "group" ? heading(row, width, row.y - top) : !row.unnamed && laneName(row, row.y - top, gutter);
    keepFocus(place, "group", () => put(place, ...rows.map(nameOf)));
  }

  Railyard.lanes = { layout, visible, barHeight, drawNames, toggleAll };
})();
