"use strict";

(function () {
  const TIMES = [
    ["s", 1],
    ["ms", 1e3],
    ["µs", 1e6],
    ["ns", 1e9],
  ];

  /** Unit and factor in which `span` seconds are a number of one to four digits. */
  function timeUnit(span) {
    return TIMES.find(([, factor]) => Math.abs(span) * factor >= 0.9995) || TIMES[span ? 3 : 0];
  }

  /** A number with at most `digits` significant digits, without an exponent. */
  function number(value, digits = 4) {
    if (!Number.isFinite(value)) return "-";
    if (value === 0) return "0";
    const after = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value))));
    return value.toFixed(Math.min(after, 12));
  }

  /** A duration with its unit, such as 12.3 ms. */
  function duration(seconds, digits = 3) {
    if (!Number.isFinite(seconds)) return "-";
    const [unit, factor] = timeUnit(seconds);
    return `${number(seconds * factor, digits)} ${unit}`;
  }

  /** A moment of a window of `span` seconds, with digits to tell 1/1000 of the window apart. */
  function moment(t, span) {
    if (!Number.isFinite(t)) return "-";
    const [unit, factor] = momentUnit(span);
    const after = Math.max(0, Math.ceil(-Math.log10((span * factor) / 1000)));
    return `${(t * factor).toFixed(Math.min(after, 9))} ${unit}`;
  }

  /** Unit of moments: seconds, or less in a point that is shorter; the same for all windows of a point. */
  function momentUnit(window) {
    const span = Math.max(window, Railyard.model.duration());
    return span >= 2 ? TIMES[0] : span >= 2e-3 ? TIMES[1] : TIMES[2];
  }

  /** Positions of ticks at round numbers, at most about `count`, and the text of each. */
  function ticks(start, end, count) {
    const span = end - start;
    if (!(span > 0) || !isFinite(span)) return { unit: "s", at: [] };
    const [unit, factor] = momentUnit(span);
    const raw = (span * factor) / Math.max(1, count);
    const ten = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * ten).find((n) => n >= raw * 0.999) || ten * 10;
    const after = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    const at = [];
    for (let i = Math.ceil((start * factor) / step - 1e-9); i * step <= end * factor + 1e-9; i += 1) {
      at.push([(i * step) / factor, (i * step).toFixed(after)]);
    }
    return { unit, at };
  }

  /** Bytes with their unit (powers of 1000). */
  function bytes(count) {
    if (!(count > 0)) return "0 B";
    const power = Math.min(4, Math.floor(Math.log10(count) / 3));
    return `${number(count / 1000 ** power, 3)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
  }

  /** A rate of the real system with its unit, from Gb/s. */
  function rate(gbps) {
    if (!Number.isFinite(gbps)) return "-";
    if (gbps === 0) return "0 Gb/s";
    return gbps < 0.1 ? `${number(gbps * 1e3, 3)} Mb/s` : `${number(gbps, 3)} Gb/s`;
  }

  /** A share of one as per cent. */
  function percent(share) {
    return Number.isFinite(share) ? `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %` : "-";
  }

  /** A number of per cent with its sign. */
  function signed(percent) {
    return `${percent >= 0 ? "+" : "−"}${Math.abs(percent).toFixed(1)} %`;
  }

  /** A count with its noun in the right number. */
  function counted(count, noun, plural) {
    return `${count} ${count === 1 ? noun : plural || `${noun}s`}`;
  }

  /** The numbers of a list in words, cut after some. */
  function some(values, most = 12) {
    const shown = values.slice(0, most).join(", ");
    return values.length > most ? `${shown} and ${values.length - most} more` : shown;
  }

  const GROUP = /\b(tp|cp|dp|ep|edp|pp)((?:\.[tdes]\d+)+)\b/,
    FIXED = { t: "TP index", d: "DP index", e: "EP index", s: "stage" };

  /** What the name of a group such as dp.t0.s1 in a text means: its dimension, and what its ranks have in common. */
  function group(text) {
    const found = GROUP.exec(text);
    if (!found) return "";
    const [name, dimension, places] = found;
    const fixed = [...places.matchAll(/\.([a-z])(\d+)/g)].map(([, letter, number]) =>
      dimension === "pp" && letter === "s"
        ? `stages ${number} and ${Number(number) + 1}`
        : `${FIXED[letter]} ${number}`,
    );
    return `${name}: the ${dimension.toUpperCase()} group of ${fixed.join(", ")}`;
  }

  Railyard.format = { number, duration, moment, momentUnit, ticks, bytes, rate, percent, signed, counted, some, group };
})();
