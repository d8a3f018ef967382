"use strict";

(function () {
  const { record } = Railyard;
  const FIRST_PAUSE_MS = 500,
    LONGEST_PAUSE_MS = 15000;

  /** A query of the parameters that have a value. */
  function query(given) {
    const pairs = Object.entries(given).filter(([, value]) => value !== null && value !== undefined && value !== "");
    return pairs.map(([key, value]) => `${key}=${encodeURIComponent(value)}`).join("&");
  }

  /** Data from the server that delivered the page: requests for windows, and a stream of ticks. */
  class ServerSource {
    constructor() {
      this.embedded = false;
      this.pause = FIRST_PAUSE_MS;
      this.tries = 0;
      this.stream = null;
    }

    async read(name, given) {
      const answer = await fetch(`${name}.json?${query(given)}`, { cache: "no-store" });
      if (answer.ok) return answer.json();
      const said = record(await answer.json().catch(() => null)).error;
      throw new Error(said || `The server answered ${answer.status} for ${name}.`);
    }

    overview() {
      return this.read("overview", {});
    }

    /** The overviews of all runs: a server has one. */
    async overviews() {
      return [await this.overview()];
    }

    timeline(run, point, from, to, px) {
      return this.read("timeline", { point, from, to, px });
    }

    state(run, point, t) {
      return this.read("state", { point, t });
    }

    strips(run, point, from, to, px) {
      return this.read("strips", { point, from, to, px });
    }

    figure(run, figure) {
      return `figures/${encodeURIComponent(figure.file)}`;
    }

    /** Ask for an act on the fabric; the answer is the server's sentence, or null if it was done. */
    async control(act) {
      const answer = await fetch("control", {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(act),
      });
      const said = record(await answer.json().catch(() => null));
      if (answer.ok && said.ok) return null;
      return said.error || `The server answered ${answer.status}.`;
    }

    /** Listen for ticks; `told` has an act for each thing that happens. */
    listen(told) {
      const stream = new EventSource("stream");
      this.stream = stream;
      stream.onopen = () => {
        this.pause = FIRST_PAUSE_MS;
        this.tries = 0;
        told.back();
      };
      stream.addEventListener("tick", (event) => {
        try {
          told.heard(record(JSON.parse(event.data)));
        } catch (error) {
          Railyard.note(`tick: ${error}`);
        }
      });
      stream.addEventListener("over", (event) => {
        stream.close();
        told.over(event.data);
      });
      stream.onerror = () => {
        stream.close();
        this.tries += 1;
        told.lost(this.pause, this.tries);
        setTimeout(() => this.listen(told), this.pause);
        this.pause = Math.min(LONGEST_PAUSE_MS, this.pause * 2);
      };
    }
  }

  /** Data that stands in the page itself: a report of one run or of two, opened from a file. */
  class EmbeddedSource {
    constructor(data) {
      this.embedded = true;
      this.runs = data.runs;
      this.comparison = data.comparison;
    }

    async overviews() {
      return this.runs.map((run) => run.overview);
    }

    /** Whether there is a time line of a point: there may have been no room for it. */
    holds(run, point) {
      return point in this.runs[run].timelines;
    }

    async timeline(run, point) {
      return this.runs[run].timelines[point] || null;
    }

    async state(run, point, t) {
      return Railyard.derive.state(this.runs[run].timelines[point] || null, t);
    }

    async strips(run, point) {
      return this.runs[run].strips[point] || null;
    }

    /** The image of a figure: it stands once in the file, in the record of its run. */
    figure(run, figure) {
      const images = Array.from(document.querySelectorAll("#record img"));
      const found = images.find((image) => image.dataset.run === String(run) && image.dataset.file === figure.file);
      return found ? found.src : null;
    }

    listen() {}
  }

  /** The text of gzip-compressed bytes in base64. */
  async function inflate(text) {
    const packed = Uint8Array.from(atob(text.trim()), (sign) => sign.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  /** Where the data comes from: the page itself where it holds data, else the server. */
  async function open() {
    const held = document.getElementById("railyard-data");
    if (!held) return new ServerSource();
    return new EmbeddedSource(JSON.parse(await inflate(held.textContent)));
  }

  Railyard.source = { open };
})();
