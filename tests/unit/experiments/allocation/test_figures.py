from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from figure_words import words
from reports import printed, results_of

from experiments.allocation.experiment import STUDIES, AllocationSettings, AllocationStudy, study_rows
from experiments.allocation.figures import allocation_figures
from experiments.allocation.row import AllocationRow
from experiments.redraw import redraw
from experiments.settings import validated

DRAWN = [study for study in STUDIES if study != "reserve"]
"""The studies with a figure; the others have a table alone."""


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    made = study_rows(validated(AllocationSettings, {"racks": 12, "clusters": 1}))
    return [{**row.to_json(), "experiment": "allocation"} for row in made]


def test_a_figure_for_each_study_with_published_values_where_they_apply(rows: list[dict[str, Any]]) -> None:
    figures = allocation_figures(rows)
    assert set(figures) == {f"allocation_{study}" for study in DRAWN}
    for figure in figures.values():
        assert any("paper, simulated" in text for text in words(figure))
        assert all(axes.get_xlabel() for axes in figure.axes)


def test_lines_of_the_index_end_at_one(rows: list[dict[str, Any]]) -> None:
    axes = allocation_figures(rows)["allocation_fragmentation"].axes[0]
    steps = [line for line in axes.get_lines() if len(line.get_xdata()) > 2]  # type: ignore[arg-type]
    assert len(steps) == 4
    assert all(list(line.get_ydata())[-1] == 1.0 for line in steps)  # type: ignore[arg-type]


def test_nothing_is_drawn_of_what_is_not_there(rows: list[dict[str, Any]]) -> None:
    assert allocation_figures([]) == {}
    assert set(allocation_figures([r for r in rows if r["study"] == "protocols"])) == {"allocation_protocols"}


def test_tables_and_figures_come_from_the_folder_alone(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    results = results_of(tmp_path / "out", "allocation", AllocationRow, rows)
    assert len(redraw(results.folder)) == len(DRAWN)
    said = printed(AllocationStudy, results.rows())
    for part in ("Fragmentation index", "~75%", "simulated", "about 10x"):
        assert part in said
    assert "…" not in said and max(map(len, said.splitlines())) <= 80
    assert "[0" not in (results.folder / "summary.csv").read_text()  # values of single racks stand in JSON only
