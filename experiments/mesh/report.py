"""The table of a mesh study: cells, loss, latency and state changes of every matching."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from experiments.mesh.study import MOST_SHOWN, Answer, MeshStudy, Used, costs
from experiments.rails.report import Column, plain_table

_COLUMNS: tuple[Column, ...] = (
    ("matching", "right"),
    ("pairs", "left"),
    ("routable", "left"),
    ("cells", "right"),
    ("min / mean / max", "right"),
    ("loss dB", "right"),
    ("latency ps", "right"),
    ("flips", "right"),
    ("s", "right"),
    ("proved", "left"),
)


def print_mesh(study: MeshStudy, used: Used, found: Sequence[Answer], console: Console) -> None:
    """Print a line about the mesh, a table with a row for each matching, and a note on the columns."""
    if not console.is_terminal:
        console = Console(file=console.file, width=150, no_color=True)
    mesh = study.mesh
    console.print(
        Text(
            f"{study.width} x {study.height} mesh: {len(mesh.cells)} cells, {len(mesh.ports)} ports; "
            f"{len(used.ports)} in use ({used.how}): {', '.join(map(str, used.ports))}",
            style="bold",
        )
    )
    console.print(plain_table(_COLUMNS, (_cells(study, answer) for answer in found)))
    console.print(
        Text(
            f"Loss and latency of the longest path, at {study.cell_loss_db:g} dB and {study.cell_latency_ps:g} ps a "
            "cell. Flips: cells that change their state from the matching before.",
            style="dim",
        )
    )


def routable_in_words(answer: Answer) -> str:
    """Whether a matching is routable, in words: ``yes``, ``no`` (proved), or ``not found`` (nothing proved)."""
    return {True: "yes", False: "no", None: "not found"}[answer.routable]


def _cells(study: MeshStudy, answer: Answer) -> list[str | Text]:
    cost = costs(study, answer)
    colour = {True: "green", False: "red", None: "yellow"}[answer.routable]
    routed = answer.routed is not None
    return [
        str(answer.number),
        _pairs(answer),
        Text(routable_in_words(answer), colour),
        str(answer.routed.cells) if answer.routed is not None else "-",
        f"{cost['path_min']} / {cost['path_mean']:.1f} / {cost['path_max']}" if routed else "-",
        f"{cost['loss_db']:.1f}" if routed else "-",
        f"{cost['latency_ps']:.0f}" if routed else "-",
        "-" if answer.flips is None else str(answer.flips),
        f"{answer.seconds:.2f}",
        "yes" if answer.proved else "no",
    ]


def _pairs(answer: Answer) -> str:
    shown = " ".join(f"{a}-{b}" for a, b in answer.pairs[:MOST_SHOWN])
    more = len(answer.pairs) - MOST_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
