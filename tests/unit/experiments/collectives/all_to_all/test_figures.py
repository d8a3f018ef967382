"""Tables and figures of the all-to-all experiment, from rows made up of its formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from all_to_all_rows import EVERY, row, whole_run
from figure_words import words
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from reports import printed, results_of

from experiments.collectives.all_to_all.experiment import AllToAll
from experiments.collectives.all_to_all.figures import all_to_all_figures
from experiments.collectives.all_to_all.row import AllToAllRow
from experiments.redraw import redraw
from measure.figures.looks import POLICIES

NAMES = {f"all_to_all_{name}" for name in ("bytes", "ranks", "delay", "duty", "skew")}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return whole_run()


@pytest.fixture(scope="module")
def figures(rows: list[dict[str, Any]]) -> dict[str, Figure]:
    return all_to_all_figures(rows)


def marks(axes: Axes) -> set[tuple[float, float]]:
    """Every point that is drawn as measured."""
    lines = [line for line in axes.get_lines() if line.get_marker() not in ("None", "", "x")]
    return {
        (round(float(x), 6), round(float(y), 6))
        for line in lines
        for x, y in zip(*map(np.asarray, line.get_data()), strict=True)
    }


def test_a_figure_for_each_thing_that_varies(figures: dict[str, Figure]) -> None:
    assert set(figures) == NAMES
    names = {POLICIES[policy].name for policy in EVERY}
    for name in ("bytes", "ranks", "delay"):
        assert names <= set(words(figures[f"all_to_all_{name}"]))
        assert any("(n − 1)(D/B + T)" in text for text in words(figures[f"all_to_all_{name}"]))


def test_times_stand_where_they_were_measured(rows: list[dict[str, Any]], figures: dict[str, Figure]) -> None:
    time, ratio = figures["all_to_all_delay"].axes
    mine = [r for r in rows if r["study"] == "delay"]
    assert marks(time) == {(r["reconfiguration_delay_ms"], round(r["time_s"], 6)) for r in mine}
    near = {(r["reconfiguration_delay_ms"], 1.01) for r in mine if r["policy"] in ("electrical", "rotor", "demand")}
    assert marks(ratio) == near
    far = [text for text in words(figures["all_to_all_delay"]) if "× formula" in text and "↑" in text]
    assert far == ["↑ two hops (Valiant), 2.02 × formula", "↑ multi-hop, 2.32 × formula"]
    level = [line for line in time.get_lines() if list(line.get_xdata()) == [0.0, 100.0]]  # type: ignore[arg-type]
    assert len(level) == 2, "model and formula of the electrical rail, which has no delay"


def test_the_duty_cycle_stands_beside_its_formula(rows: list[dict[str, Any]], figures: dict[str, Figure]) -> None:
    duty, below = figures["all_to_all_duty"].axes
    mine = [r for r in rows if r["study"] == "slot"]
    assert marks(duty) == {(r["slot_ms"], round(r["duty_cycle"], 6)) for r in mine}
    ends = [(x[-1], round(y[-1], 4)) for x, y in (map(np.asarray, line.get_data()) for line in duty.get_lines())]
    for delay in (10, 50):
        assert (400.0, round(400 / (400 + delay), 4)) in ends
        assert (400.0, round(398 / (400 + delay), 4)) in ends, "less the guard time"
    assert below.get_ylabel() == "time / formula", "every slot has bytes of its own"


def test_slots_of_one_size_are_compared_by_time() -> None:
    rows = [row("rotor", study="slot", slot_ms=slot) for slot in (50.0, 100.0)]
    below = all_to_all_figures(rows)["all_to_all_duty"].axes[1]
    assert marks(below) == {(r["slot_ms"], round(r["time_s"] * 1e3, 6)) for r in rows}
    assert below.get_ylabel() == "time (ms)"


def test_rows_of_no_study_are_drawn_against_whatever_varies() -> None:
    rows = [row(p, bytes_per_pair=size) for p in ("electrical", "rotor") for size in (10**9, 2 * 10**9)]
    assert set(all_to_all_figures(rows)) == {"all_to_all_bytes"}
    fixed = [row("rotor", slot_ms=100.0, reconfiguration_delay_ms=d) for d in (10.0, 20.0)]
    size_driven = [row("rotor", reconfiguration_delay_ms=d) for d in (10.0, 20.0)]
    (figure,) = all_to_all_figures([*fixed, *size_driven]).values()
    assert {"rotor", "rotor, 100 ms"} <= set(words(figure))


def test_nothing_is_drawn_of_what_does_not_vary() -> None:
    assert all_to_all_figures([]) == {}
    assert all_to_all_figures([row("rotor"), row("electrical")]) == {}
    assert all_to_all_figures([{**r, "experiment": "other"} for r in whole_run()]) == {}


def said_of(rows: Sequence[Mapping[str, Any]]) -> str:
    return printed(AllToAll, rows, 200)


def test_tables_say_what_was_found(rows: list[dict[str, Any]]) -> None:
    said = said_of(rows)
    for part in ("study: bytes", "study: skew", "rotor: time / formula 1.005", "88.2", "No packet arrived at a host"):
        assert part in said
    assert "as many bytes as they sent" in said


def test_what_came_out_at_a_wrong_host_or_not_at_all_is_named() -> None:
    said = said_of([row("rotor", misdelivered=3), row("demand", payload_received_bytes=1), row("electrical")])
    point = "8 ranks, 2,000,000,000 bytes per pair, 20 ms"
    assert f"3 packets arrived at a host other than their destination (rotor, {point}: 3)" in said
    assert f"demand, {point}: ranks sent 112,000,000,000 bytes and received 1." in said
    assert "No packet" not in said


def test_what_nobody_could_count_is_not_claimed() -> None:
    said = said_of([row("rotor", misdelivered=None)])
    assert "No packet" not in said and "came out" not in said


def test_figures_and_table_come_from_the_folder_alone(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    results = results_of(tmp_path / "out", "all-to-all", AllToAllRow, rows)
    written = redraw(results.folder)
    assert {path.stem for path in written} == {*NAMES, "trace"}
    told = [line for line in said_of(rows).splitlines() if "time / formula" in line]
    assert told == [line for line in said_of(results.rows()).splitlines() if "time / formula" in line]
    assert len(told) == len(EVERY)


@pytest.mark.parametrize("width", [80, 200])
def test_the_tables_fit(rows: list[dict[str, Any]], width: int) -> None:
    said = printed(AllToAll, rows, width)
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= width
