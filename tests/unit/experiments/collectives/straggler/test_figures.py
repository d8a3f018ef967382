from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from figure_words import words
from matplotlib.figure import Figure

from experiments.collectives.straggler.figures import (
    PUBLISHED_SPEEDUPS,
    series_name,
    straggler_figures,
)
from experiments.collectives.straggler.law import LAW_ALGORITHMS, StragglerLaw
from measure.figures.looks import ALGORITHMS
from measure.figures.style import png
from railyard.scale import Scale

LAW = StragglerLaw(8, 7_000_000, 0.002, 50e6 / 8)
SLOWER = 1.02
"""What is "measured" here takes this much longer than the law, but for the delay itself."""


def row(law: StragglerLaw, algorithm: str, delay_s: float, after_s: float, **more: Any) -> dict[str, Any]:
    return {
        "experiment": "straggler",
        "study": "delay",
        "algorithm": algorithm,
        "collective": "all_reduce",
        "n": law.n,
        "bytes": law.bytes,
        "fabric": "electrical",
        "straggler_delay_s": delay_s,
        "time_s": delay_s + after_s * SLOWER,
        "after_arrival_s": after_s * SLOWER,
        "predicted_time_s": delay_s + after_s,
        "predicted_after_arrival_s": after_s,
        "wrong": 0,
        "faithful": True,
    } | more


def delay_rows(law: StragglerLaw = LAW, **more: Any) -> list[dict[str, Any]]:
    delays = [law.first_phase_s * k / 6 for k in range(9)]
    return [row(law, a, d, law.after_arrival_s(a, d), **more) for a in LAW_ALGORITHMS for d in delays]


def test_the_bus_bandwidth_has_a_panel_with_and_one_without_a_late_rank() -> None:
    made = [{**row, "straggler_delay_s": late_s, "busbw_gbps": row["bytes"] / row["after_arrival_s"] / 1e9}
            for row in size_rows() for late_s in (0.0, 9.0)]  # fmt: skip
    figure = straggler_figures(made)["straggler_bandwidth"]
    titles = [panel.get_title(loc="left") for panel in figure.axes]
    assert titles == ["n = 8, electrical, none late", "n = 8, electrical, a rank late"]
    assert figure.axes[0].get_ylabel().replace("\n", " ") == "bus bandwidth (Gb/s)"
    assert "straggler_bandwidth" not in straggler_figures(size_rows())


def rank_rows() -> list[dict[str, Any]]:
    laws = [StragglerLaw(n, (n - 1) * 1_000_000, 0.002, 50e6 / 8) for n in (4, 8, 16)]
    return [row(law, a, 9.0, law.after_arrival_s(a, 9.0), study="ranks") for law in laws for a in LAW_ALGORITHMS]


def size_rows() -> list[dict[str, Any]]:
    laws = [StragglerLaw(8, 1 << p, 0.002, 50e6 / 8) for p in range(10, 24)]
    return [row(law, a, 9.0, law.after_arrival_s(a, 9.0), study="size") for law in laws for a in LAW_ALGORITHMS]


def reconfiguration_rows() -> list[dict[str, Any]]:
    found = []
    for ms in (0, 20, 40, 80, 160):
        for algorithm, rounds in (("ring", 0), ("stragglar", LAW.rounds)):
            after = LAW.after_arrival_s(algorithm, 9.0) + rounds * ms / 1e3
            more = {"study": "reconfiguration", "reconfiguration_delay_ms": ms, "fabric": "ocs"}
            found.append(row(LAW, algorithm, 9.0, after, **more))
    return found


def prediction_rows() -> list[dict[str, Any]]:
    found, delay = [], 0.7 * LAW.first_phase_s
    for p in (0.3, 0.5, 0.7, 0.9, 1.0):
        wrong = LAW.wrong_s(delay) - delay
        aware = p * LAW.after_arrival_s("stragglar", delay) + (1 - p) * wrong
        for name, after in (("ring", LAW.ring_s), ("stragglar", aware)):
            found.append(row(LAW, name, delay, after, study="prediction", persistence=p))
    return found


def against_delay(rows: list[dict[str, Any]], laws: Sequence[StragglerLaw] = ()) -> Figure:
    return straggler_figures(rows, laws)["straggler_delay"]


def test_each_study_is_one_figure_and_others_are_left_out() -> None:
    every = [*delay_rows(study="delay"), *rank_rows(), *size_rows(), *reconfiguration_rows(), *prediction_rows()]
    names = ["delay", "ranks", "size", "reconfiguration", "prediction"]
    made = straggler_figures(every, [LAW])
    assert list(made) == [f"straggler_{name}" for name in names]
    assert png(made["straggler_size"], Scale(1.0), faithful=False).startswith(b"\x89PNG")
    for name in names:
        assert list(straggler_figures([r for r in every if r["study"] == name])) == [f"straggler_{name}"]
    assert straggler_figures([]) == {} and straggler_figures(every[:1]) == {}


def test_the_critical_delay_is_marked_where_it_is_predicted_and_where_it_was_measured() -> None:
    figure = against_delay(delay_rows(), [LAW])
    said = words(figure)
    assert f"$T_{{crit}}$ {LAW.critical_delay_s:.3g}" in said and f"$T_{{RS}}$ {LAW.first_phase_s:.3g}" in said
    (measured,) = [text for text in said if text.startswith("measured")]
    assert float(measured.split()[2]) == pytest.approx(LAW.critical_delay_s, rel=0.01)
    assert measured.endswith("%)"), "and how far it is from the prediction"


def test_break_evens_of_the_other_studies() -> None:
    made = straggler_figures([*reconfiguration_rows(), *prediction_rows()], [LAW])
    said = words(made["straggler_reconfiguration"])
    assert f"break-even {LAW.critical_reconfiguration_s * 1e3:.3g}" in said
    (measured,) = [text for text in said if text.startswith("measured")]
    assert float(measured.split()[2]) == pytest.approx(LAW.critical_reconfiguration_s * 1e3, rel=0.01)
    right, wrong = LAW.after_arrival_s("stragglar", 0.7 * LAW.first_phase_s), LAW.first_phase_s + LAW.second_phase_s
    expected = (wrong - LAW.ring_s) / (wrong - right)
    (measured,) = [text for text in words(made["straggler_prediction"]) if text.startswith("measured")]
    assert float(measured.split()[2]) == pytest.approx(expected, rel=0.01)


def test_circuits_are_compared_with_packets_and_other_experiments_are_passed_over() -> None:
    packets = [row(LAW, a, 9.0, LAW.after_arrival_s(a, 9.0), study="reconfiguration") for a in ("ring", "stragglar")]
    figure = straggler_figures([*reconfiguration_rows(), *packets])["straggler_reconfiguration"]
    assert "on packets, measured" in words(figure)
    assert straggler_figures([{**r, "experiment": "collective", "study": ""} for r in size_rows()]) == {}


def test_speedups_are_those_of_the_rows() -> None:
    figure = straggler_figures(rank_rows())["straggler_ranks"]
    (line,) = [one for one in figure.axes[0].lines if one.get_marker() == "^" and np.asarray(one.get_xdata())[0] == 8]
    assert np.asarray(line.get_ydata())[0] == pytest.approx(StragglerLaw(8, 7_000_000, 0.002, 50e6 / 8).speedup)


def test_published_speedups_of_all_algorithms_are_drawn_in_their_colours() -> None:
    (axes,) = straggler_figures(rank_rows())["straggler_ranks"].axes
    crosses = [line for line in axes.lines if line.get_marker() == "o" and line.get_markerfacecolor() == "none"]
    assert [line.get_color() for line in crosses] == [ALGORITHMS[name].colour for name in PUBLISHED_SPEEDUPS]
    assert [float(np.asarray(line.get_ydata())[-1]) for line in crosses] == [1.941, 1.331, 0.335]


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"algorithm": "stragglar"}, "stragglar"),
        ({"algorithm": "stragglar", "injection": "wrong:0.3"}, "stragglar (wrong rank)"),
        ({"algorithm": "stragglar", "injection": "fixed:1+wrong"}, "stragglar (wrong rank)"),
        ({"algorithm": "ring", "injection": "wrong:0.3"}, "ring"),
        ({"algorithm": "my-own"}, "my-own"),
    ],
)
def test_a_wrong_prediction_is_a_curve_of_its_own(more: Mapping[str, Any], name: str) -> None:
    assert series_name(more) == name
