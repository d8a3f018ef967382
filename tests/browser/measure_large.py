"""Measures how a large results folder opens: times until the overview, a time line and a window of it, and memory.

    scripts/_venv.py tests/browser/measure_large.py FOLDER [--mb 100] [--one-point]

FOLDER is a results folder of a run on rails. Its points are repeated until the events have the size; with --one-point
they are all one point, whose time line is the longest that the events give. Then a run under way is imitated: the
events of one point are written as its processes would, and each refresh is timed. Where there is a chromium, it opens
the page of the large folder: time until the first drawing, frames a second while the time line is panned, and the
memory of the server.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "tests/support")]

from watch.browser import Browser, missing  # noqa: E402
from watch.watching import watching  # noqa: E402

from commands.page.run_view import RunView  # noqa: E402
from railyard.point_folder import EVENTS, NOTES, numbers_in, point_folder  # noqa: E402

_PANS = 50
_PANNED_S = 5.0
_PAN = """
const [seconds, done] = arguments, costs = [], start = performance.now();
let frames = 0, way = 0.01;
Railyard.model.setWindow(0, Railyard.model.duration() * given_share);
const step = () => {
  const now = performance.now(), shown = Railyard.debug.window;
  if (now - start > seconds * 1000) return done([frames / (now - start) * 1000, costs]);
  if (shown.to >= Railyard.model.duration() || shown.from <= 0) way = shown.from <= 0 ? 0.01 : -0.01;
  Railyard.pointing.pan(way);
  costs.push(performance.now() - now);
  frames += 1;
  requestAnimationFrame(step);
};
requestAnimationFrame(step);
"""
"""Moves the window by a hundredth of its width in each frame; gives frames a second and the cost of each, in ms."""


def main() -> None:
    """Make the folder, measure in a process of its own, and print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--mb", type=float, default=100)
    parser.add_argument("--one-point", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        large, live = Path(place, "large"), Path(place, "live")
        repeated(options.folder, large, int(options.mb * 1e6), one_point=options.one_point)
        imitated = live_copy(options.folder, live)
        calls: list[Callable[[], None]] = [lambda: finished(large), lambda: under_way(live, imitated)]
        for measure in calls:
            if (child := os.fork()) == 0:  # each has the memory of a process of its own
                measure()
                sys.stdout.flush()
                os._exit(0)
            os.waitpid(child, 0)
        print(missing() or in_browser(large, Path(place, "profile")))


def in_browser(folder: Path, profile: Path) -> str:
    """What a reader waits for: the first drawing, and frames while the time line of the last point is panned."""
    lines = []
    with watching(folder) as served, Browser(profile) as browser:
        paints = []
        for _ in range(5):
            browser.open(served.url)
            paints.append(float(browser.js("Railyard.debug.firstPaint")))
        lines.append(f"first drawing: median {statistics.median(paints):.0f} ms, longest {max(paints):.0f} ms")
        browser.until("Railyard.debug.lanes.length > 0")
        for share in (0.5, 0.05):
            script = _PAN.replace("given_share", str(share))
            rate, costs = browser.driver.execute_async_script(script, _PANNED_S)
            cost = f"script {statistics.median(costs):.1f} ms a frame"
            lines.append(f"panning a window of {share:.0%} of the point: {rate:.0f} frames a second, {cost}")
        memory = memory_mb(served.process.pid)
        lines.append(f"memory of the server with its page: {memory:.0f} MB")
    return "\n".join(lines)


def repeated(source: Path, target: Path, size: int, *, one_point: bool) -> None:
    """A folder with the points of ``source`` again and again, one after another, or all of them as one point."""
    target.mkdir()
    shutil.copy(source / "manifest.json", target)
    shutil.copy(source / "summary.json", target)
    blocks = list(points_in(source))
    if one_point:
        blocks = [block for block in blocks if block[0]["fabric"] == blocks[-1][0]["fabric"]]
    written, number, shift, whole = 0, 0, 0.0, list[dict[str, Any]]()
    while written < size:
        for block in blocks:
            moved = shift - block[0]["t"] + blocks[0][0]["t"]
            block = [
                {k: v + moved if k in ("t", "end", "posted", "asked", "ready") else v for k, v in event.items()}
                for event in block
            ]
            shift += block[0]["end"] - block[0]["t"] + 1
            if one_point:
                whole += [{**e, "step": e["step"] + number} if "step" in e else e for e in block[1:]]
                written += sum(len(json.dumps(event)) for event in block)
            else:
                written += write_point(target, number, [{**block[0], "point": number}, *block[1:]])
            number += 1
    if one_point:
        write_point(target, 0, [{**blocks[0][0], "end": blocks[0][0]["t"] + shift, "point": 0}, *whole])


def write_point(folder: Path, number: int, events: list[dict[str, Any]]) -> int:
    place = point_folder(folder, number)
    place.mkdir(parents=True)
    lines = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
    return (place / EVENTS).write_text(lines, encoding="utf-8")


def points_in(source: Path) -> Iterator[list[dict[str, Any]]]:
    """The events of each point of a folder; the first one is its ``run point``."""
    for number in numbers_in(source):
        yield [json.loads(line) for line in (point_folder(source, number) / EVENTS).read_text("utf-8").splitlines()]


def finished(folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.glob(f"points/*/{EVENTS}"))
    print(f"{size / 1e6:.0f} MB of events")
    began = time.perf_counter()
    view = RunView(folder, patience_s=0.3)
    opened = time.perf_counter() - began
    made, overview = timed(view.overview)
    again = timed(view.overview)[0]
    print(f"open: {opened:.3f} s, overview: {made:.3f} s with its imports, then {again * 1e3:.1f} ms")
    print(f"  {len(overview['points'])} points, {len(json.dumps(overview)) / 1e6:.2f} MB")
    began = time.perf_counter()
    while view.refresh():
        pass
    points = view.points()
    print(f"all {len(points)} points found {time.perf_counter() - began:.3f} s later")
    number = points[-1]["number"]
    first, line = timed(lambda: view.timeline(number))
    print(f"first time line of a point: {first:.3f} s, {line['loaded']:.0%} of it")
    began = time.perf_counter()
    while view.refresh():
        pass
    print(f"the whole point: {first + time.perf_counter() - began:.3f} s")
    again, line = timed(lambda: view.timeline(number))
    bars = sum(len(lane["s"]) for lane in line["bars"].values())
    print(f"whole time line again: {again * 1e3:.1f} ms, {bars} bars, {len(json.dumps(line)) / 1e6:.2f} MB")
    length = line["duration"]
    for share in (0.5, 0.05, 0.005):
        span = length * share
        pans = []
        for place in range(_PANS):
            start = (length - span) * place / _PANS
            pans.append(timed(lambda: view.timeline(number, start, start + span))[0] * 1e3)  # noqa: B023
        print(f"window of {share:.1%}: median {statistics.median(pans):.1f} ms, longest {max(pans):.1f} ms")
    states = [timed(lambda: view.state(number, length * i / _PANS))[0] * 1e3 for i in range(_PANS)]  # noqa: B023
    strips = timed(lambda: view.strips(number))[0] * 1e3
    print(f"state at a moment: median {statistics.median(states):.1f} ms; strips: {strips:.1f} ms")
    print(
        f"memory: {memory_mb():.0f} MB now, {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB at most"
    )


def live_copy(source: Path, target: Path) -> list[dict[str, Any]]:
    """A folder as of a run that has just begun, and the events of its point."""
    target.mkdir()
    manifest = json.loads((source / "manifest.json").read_text(encoding="utf-8"))
    manifest = {key: value for key, value in manifest.items() if key not in ("ended", "ended_at")}
    (target / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    point_folder(target, 0).mkdir(parents=True)
    return max(points_in(source), key=len)


def under_way(folder: Path, events: list[dict[str, Any]]) -> None:
    """Write a point as its processes would, ten times a second of it, and time each refresh of a view."""
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    head, place_of = events[0], point_folder(folder, 0)
    begun = {**next(event for event in events if event["kind"] == "begun"), "point": 0, "title": "live"}
    (place_of / NOTES).write_text(json.dumps(begun, separators=(",", ":")) + "\n", encoding="utf-8")
    ended = sorted(events[1:], key=lambda e: e.get("end", e["t"]))
    view = RunView(folder)
    costs, shown, place = [], [], 0
    moments = range(1, int((head["end"] - head["t"]) * 10) + 1)
    for moment in moments:
        while place < len(ended) and ended[place].get("end", ended[place]["t"]) <= head["t"] + moment / 10:
            event, place = ended[place], place + 1
            name = f"g{event['rank']}" if event["source"] == "agent" else "controller"
            name = "sampler" if event["source"] == "link" else name
            with open(place_of / f"{name}.jsonl", "a", encoding="utf-8") as out:
                out.write(json.dumps(event, separators=(",", ":")) + "\n")
        costs.append(timed(view.refresh)[0] * 1e3)
        now = view.timeline(0)["duration"]
        shown.append(timed(lambda: view.timeline(0, max(0.0, now - 5), now))[0] * 1e3)  # noqa: B023
    idle = statistics.median(timed(view.refresh)[0] * 1e3 for _ in range(_PANS))
    print(f"a run under way, {len(moments)} refreshes:")
    print(f"  something new: median {statistics.median(costs):.2f} ms, longest {max(costs):.1f} ms")
    print(f"  nothing new: {idle:.2f} ms; time line of the last 5 s: median {statistics.median(shown):.1f} ms")
    print(f"  memory: {memory_mb():.0f} MB")
    os.close(lock)


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


def memory_mb(process: int | str = "self") -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
