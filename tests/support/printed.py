"""What a report prints, as text of a given width."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from experiments.experiment import Experiment
from experiments.report import show


def printed(kind: type[Experiment[Any]], rows: Sequence[Mapping[str, Any]], width: int = 80, **settings: Any) -> str:
    """The report of rows on a terminal of ``width`` columns; ``settings`` are keys of the manifest's experiment."""
    out = io.StringIO()
    values = {**kind.Settings().model_dump(mode="json"), **settings}
    show(kind.report(), rows, values, packets=kind.packets, console=Console(file=out, width=width, no_color=True))
    return out.getvalue()
