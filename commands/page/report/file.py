"""``report.html``: all of one run, or of two and their comparison, in one file that needs no network and no server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands.page.comparison import Side
from commands.page.facts import facts, occasion
from commands.page.report.concerning import concerning
from commands.page.report.embedded import View, embedded
from commands.page.report.inlined import inlined
from commands.page.report.record import Recounted, record
from experiments.experiment import Experiment
from measure.results.foreign import reading
from measure.results.results import FIGURES, REPORT, Results
from railyard.errors import ConfigError
from railyard.reading import files_below

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

    view: View
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
    from commands.page.run_view import RunView

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
    """The file in pieces."""
    overviews = [each.view.overview() for each in told]
    fixed = sum(len(image) for each in told for image in each.figures.values())
    room = max(_LEAST_TIMELINES, int(USUAL_BYTES / _BASE64) - fixed)
    data = embedded([each.view for each in told], overviews, compared, room, [each.left for each in told])
    runs = [_recounted(*each) for each in zip(told, data.overviews, strict=True)]
    title = " and ".join(str(overview.get("name", "")) for overview in overviews)
    yield from inlined(f"{title} - Railyard", record(runs, compared), data.packing.base64())


def _recounted(told: Told, overview: Mapping[str, Any]) -> Recounted:
    side, manifest = told.side, told.side.recorded.manifest
    claims = concerning(side.kind, side.recorded)
    return Recounted(overview, [*occasion(manifest), *facts(manifest)], claims, told.figures)
