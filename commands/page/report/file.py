"""``report.html``: all of one run, or of two and their comparison, in one file that needs no network and no server.

The page is in it with its scripts, styles and data, and with a policy that lets nothing else run and nothing load
(Content Security Policy Level 3, https://www.w3.org/TR/CSP3/, "hash-source"): it names the hash of every script and
style, so that a script that a text of the data brought in would not run.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands.page.answers import as_json
from commands.page.report.comparison import Side
from commands.page.report.record import Recounted, concerning, facts, occasion, record, text
from commands.page.run_view import RunView
from experiments.experiment import Experiment
from measure.results.foreign import reading
from measure.results.results import FIGURES, REPORT, Results
from railyard.errors import ConfigError
from railyard.reading import files_below

# ---- data, compressed ------------------------------------------------------------------------------------------------


_GZIP = 16 + zlib.MAX_WBITS
_LEVEL = 6
_TRIPLES = 3


class Packing:
    """A stream of JSON text that is compressed as it comes; a piece that is too large can be taken back."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._pieces: list[bytes] = []

    def add(self, content: str) -> None:
        self._pieces.append(self._packer.compress(content.encode()))

    def add_within(self, content: str, most: int) -> bool:
        """Append text if it takes at most ``most`` bytes, compressed; returns whether it was appended."""
        packer = self._packer.copy()
        packed = packer.compress(content.encode()) + packer.flush(zlib.Z_SYNC_FLUSH)
        if len(packed) > most:
            return False
        self._packer = packer
        self._pieces.append(packed)
        return True

    @property
    def size(self) -> int:
        """Bytes so far, compressed; text that is still in the compressor is not counted."""
        return sum(map(len, self._pieces))

    def base64(self) -> Iterator[bytes]:
        """The whole stream, ended, in base64."""
        self._pieces.append(self._packer.flush())
        left = b""
        for piece in self._pieces:
            left += piece
            whole = len(left) - len(left) % _TRIPLES
            yield base64.b64encode(left[:whole])
            left = left[whole:]
        yield base64.b64encode(left)


def _json(value: Any) -> str:
    return as_json(value).decode()


# ---- data of the runs ------------------------------------------------------------------------------------------------


LEAST_POINT = 4_000
"""Bytes, compressed, that a point may always take if the room for all is not used up."""
MOST_PX, LEAST_PX, STRIPS_PX = 8192, 128, 600
"""Pixels of a time line, in which bars shorter than one are merged, and of strip charts."""
_FEWER = 4
"""By what the pixels of a time line that is too long are divided."""


@dataclass(frozen=True)
class Embedded:
    """The data of a report, the overviews in it, and for each run the numbers of the points without time lines."""

    packing: Packing
    overviews: Sequence[Mapping[str, Any]]
    left_out: Sequence[Sequence[int]]


def embedded(
    views: Sequence[RunView],
    overviews: Sequence[Mapping[str, Any]],
    compared: Mapping[str, Any] | None,
    room: int,
    says: Sequence[Sequence[str]] = (),
) -> Embedded:
    """The data of runs, whose time lines may take ``room`` bytes together.

    ``says`` are, for each run, sentences about what else is not in the file. They and one about time lines are notes of
    the overview, which is made again after all points were read: by then it counts all unreadable lines.

    Each point may take an equal part of what the points before it have left; those that a row counts come first. A time
    line that takes more is made of fewer pixels.
    """
    packing, left_out, noted = Packing(), list[list[int]](), list[Mapping[str, Any]]()
    packing.add(f'{{"format":1,"comparison":{_json(compared)},"runs":[')
    for number, (view, overview) in enumerate(zip(views, overviews, strict=True)):
        packing.add(f'{"," if number else ""}{{"timelines":{{')
        points = sorted(overview["points"], key=lambda point: not point["counts"])
        budget = _Budget(packing, room // len(views), len(points))
        strips = dict[int, str]()
        for point in points:  # both of a point together, whose events are then read once
            if _timeline(view, point, budget, "," if strips else ""):
                strips[point["number"]] = _json(view.strips(point["number"], 0.0, _end(point), STRIPS_PX))
        left_out.append([point["number"] for point in points if point["number"] not in strips])
        charts = ",".join(f'"{number}":{chart}' for number, chart in strips.items())
        noted.append(_noted(view.overview(), left_out[-1], says[number] if says else ()))
        packing.add(f'}},"strips":{{{charts}}},"overview":{_json(noted[-1])}}}')
    packing.add("]}")
    return Embedded(packing, noted, left_out)


def _noted(overview: Mapping[str, Any], left_out: Sequence[int], says: Sequence[str]) -> dict[str, Any]:
    """The overview with notes about what the file has not."""
    said = list(says)
    if left_out:
        lines = f"The time lines of {len(left_out)} of {len(overview['points'])} points are not in this file"
        said.append(f"{lines}; railyard watch shows them.")
    return {**overview, "notes": [*overview["notes"], *said]}


class _Budget:
    """The room of the time lines of a run: what is left of it, and for how many points."""

    def __init__(self, packing: Packing, room: int, points: int) -> None:
        self.packing, self._end, self._points = packing, packing.size + room, points

    def share(self) -> int:
        """The most bytes that the next point may take; 0 if the room is used up."""
        left = self._end - self.packing.size
        share = max(left // max(1, self._points), LEAST_POINT)
        self._points -= 1
        return share if left >= LEAST_POINT else 0


def _timeline(view: RunView, point: Mapping[str, Any], budget: _Budget, comma: str) -> bool:
    """Add the time line of a point after a ``comma`` in as many pixels as there is room for; whether it was added."""
    share, px = budget.share(), MOST_PX
    while share and px >= LEAST_PX:
        shown = view.timeline(point["number"], 0.0, _end(point), px)
        if budget.packing.add_within(f'{comma}"{point["number"]}":{_json(shown)}', share):
            return True
        px //= _FEWER
    return False


def _end(point: Mapping[str, Any]) -> float | None:
    """The end of a point; None of one that was under way, of which all is shown."""
    duration = point["duration"]
    return None if duration is None else float(duration)


# ---- the page with all that it loads ---------------------------------------------------------------------------------


PAGE = Path(__file__).parents[1] / "static"
DATA = "railyard-data"
"""Id of the element that holds the data: gzip-compressed JSON in base64."""
_PIECES = re.compile(
    r'<link rel="stylesheet" href="(?P<style>[\w./-]+)">\n?|<script src="(?P<script>[\w./-]+)"></script>\n?'
)
_HEAD = '<meta charset="utf-8">\n'
_WITHOUT_SCRIPTS = "main, #banner, #skip, #experiment, #state, header .tools { display: none }"
"""Style of a browser that runs no scripts: what they would fill is not shown."""
_ENDS = re.compile("</(script|style)|<!--", re.IGNORECASE)
"""Text that would end a script or style early, or change how it is read."""


def inlined(
    title: str, record: Iterable[str], data: Iterable[bytes], folder: Path = PAGE, own: tuple[str, ...] = ("report",)
) -> Iterator[bytes]:
    """The page of ``folder`` in pieces, with ``record`` (HTML) and ``data`` (base64) in it.

    ``own`` are names of a style and a script that only a report has.
    """
    index = (folder / "index.html").read_text(encoding="utf-8")
    extra = "".join(f'<link rel="stylesheet" href="{name}.css">\n' for name in own)
    index = index.replace("</head>", f"{extra}<noscript><style>{_WITHOUT_SCRIPTS}</style></noscript>\n</head>", 1)
    extra = "".join(f'<script src="{name}.js"></script>\n' for name in own)
    index = index.replace("</body>", f"{extra}</body>", 1)
    index = re.sub("<title>.*?</title>", lambda _: f"<title>{text(title)}</title>", index, count=1)
    hashes: dict[str, list[str]] = {"style": [_hash(_WITHOUT_SCRIPTS)], "script": []}

    def piece(found: re.Match[str]) -> str:
        kind = str(found.lastgroup)
        content = _harmless(folder / found[kind])
        hashes[kind].append(_hash(content))
        return f"<{kind}>{content}</{kind}>\n"

    whole = _PIECES.sub(piece, index)
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_policy(hashes["script"], hashes["style"])}">\n'
    whole = whole.replace(_HEAD, _HEAD + policy, 1)
    before, first, after = whole.partition("<script>")
    yield before.encode()
    yield from (each.encode("utf-8", "replace") for each in record)
    yield f'<script type="application/json" id="{DATA}">'.encode()
    yield from data
    yield b"</script>\n"
    yield (first + after).encode()


def _harmless(path: Path) -> str:
    content = path.read_text(encoding="utf-8")
    found = _ENDS.search(content)
    if found:
        raise ValueError(f"{path} holds {found[0]!r}, which would end it early inside a page")
    return content


def _hash(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode('ascii')}'"


def _policy(scripts: Iterable[str], styles: Iterable[str]) -> str:
    parts = {
        "default-src": "'none'",
        "script-src": " ".join(dict.fromkeys(scripts)),
        "style-src": " ".join(dict.fromkeys(styles)),
        "img-src": "data:",
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    return "; ".join(f"{name} {value}" for name, value in parts.items())


# ---- the report ------------------------------------------------------------------------------------------------------


COMPARISON = "comparison.html"
USUAL_BYTES = 4_500_000
"""Size of the file that time lines are thinned to."""
_LEAST_TIMELINES = 1_000_000
"""Bytes, compressed, of all time lines of a file whose figures alone are large."""
MOST_FIGURES = 4_000_000
"""Bytes of the figures of a run in its report; a figure for which there is no room is named."""
_BASE64 = 4 / 3
_ROUNDS = 100_000
"""Most calls of ``RunView.refresh``, each of which reads some of a folder."""


@dataclass(frozen=True)
class Told:
    """One run of a report: the view of its folder, its rows and manifest, and its figures.

    ``left`` are sentences about figures that are not in the file.
    """

    view: RunView
    side: Side
    figures: Mapping[str, bytes]
    left: Sequence[str] = ()


def write_report(
    folders: Sequence[Path],
    out: Path | None = None,
    kind: type[Experiment[Any]] | None = None,
    compared: Mapping[str, Any] | None = None,
) -> Path:
    """Write the report of a results folder, or of two and how they ``compared``; returns its path.

    ``out`` is the file (default ``report.html`` in the folder, of two folders ``comparison.html`` here), ``kind`` the
    experiment (default that of the manifest). ``ConfigError`` for a folder that is none of ours, and where nothing can
    be written.
    """
    if out is None:
        out = folders[0] / REPORT if len(folders) == 1 else Path(COMPARISON)
    if out.is_dir() or not out.absolute().parent.is_dir():
        what = "is a folder" if out.is_dir() else "is in no folder"
        raise ConfigError(f"{out} {what}; name a file in a folder that exists", key="--out")
    with ExitStack() as stack:
        told = []
        for folder in folders:
            side, view = Side.read(folder, kind), RunView(folder, kind=kind)
            stack.callback(view.close)
            any(not view.refresh() for _ in range(_ROUNDS))
            told.append(Told(view, side, *figures_in(folder)))
        try:
            with reading(Path(" and ".join(map(str, folders)))):
                return Results(out.absolute().parent).write(out.name, report_html(told, compared))
        except PermissionError:
            raise ConfigError(
                f"{out} cannot be written: its folder belongs to another user; use sudo, or name another file",
                key="--out",
            ) from None


def figures_in(folder: Path) -> tuple[dict[str, bytes], list[str]]:
    """The figures of a folder that fit into a report, and a sentence about each that does not."""
    found, left, room = dict[str, bytes](), list[str](), MOST_FIGURES
    for path in sorted(files_below(folder / FIGURES, ".png")):
        if path.is_symlink() or not path.is_file():
            continue
        size = path.stat().st_size
        if size > room:
            left.append(f"Figure {path.name} ({size / 1e6:.1f} MB) is not in this file; the results folder has it.")
            continue
        found[path.name] = path.read_bytes()
        room -= size
    return found, left


def report_html(told: Sequence[Told], compared: Mapping[str, Any] | None) -> Iterator[bytes]:
    overviews = [each.view.overview() for each in told]
    fixed = sum(len(image) for each in told for image in each.figures.values())
    room = max(_LEAST_TIMELINES, int(USUAL_BYTES / _BASE64) - fixed)
    data = embedded([each.view for each in told], overviews, compared, room, [each.left for each in told])
    runs = [_recounted(*each) for each in zip(told, data.overviews, strict=True)]
    title = " and ".join(overview["name"] for overview in overviews)
    yield from inlined(f"{title} - Railyard", record(runs, compared), data.packing.base64())


def _recounted(told: Told, overview: Mapping[str, Any]) -> Recounted:
    side, manifest = told.side, told.side.recorded.manifest
    claims = concerning(side.kind, side.recorded)
    return Recounted(overview, [*occasion(manifest), *facts(manifest)], claims, told.figures)
