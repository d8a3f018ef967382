"""Findings of straggler studies: steps that StragglAR wins and loses, beside the law and the published numbers."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.collectives.straggler.experiment import LOG_SHARE, StragglerSettings
from experiments.collectives.straggler.findings import findings
from measure.results.row import Row

SETTINGS = StragglerSettings()


def rows(n: int, size: int, study: str, delay_s: float, **more: Any) -> list[Row]:
    """Rows of Ring and StragglAR as the law says."""
    law = SETTINGS.law(n, size)
    steps = {"ring": 1 + law.step_gain(more.get("all_reduce_share", 1.0), delay_s), "stragglar": 1.0}
    common = {"n": n, "bytes": size, "study": study, "straggler_delay_s": delay_s, "fabric": "electrical", **more}
    return [
        {
            **common,
            "algorithm": name,
            "after_arrival_s": law.after_arrival_s(name, delay_s),
            "time_s": law.total_s(name, delay_s),
            "mean_step_time_s": step_s,
        }
        for name, step_s in steps.items()
    ]


def test_a_step_is_said_with_its_break_even_and_the_log_beside_its_own_point_alone() -> None:
    won = rows(8, 1 << 22, "step", 0.73, all_reduce_share=0.2, expected_late=1.0)
    lost = rows(4, 1 << 19, "step", 0.0103, all_reduce_share=LOG_SHARE, expected_late=1.0)
    first, second, last = findings(SETTINGS, [*won, *lost])
    assert "late by 0.730 s (T_crit 0.268 s)" in first and "takes 1.0" in first and "A100" not in first
    assert "late by 0.010 s (T_crit 0.043 s)" in second and "takes 0.99" in second
    assert (
        "117.6 ms (authors' files, measured) of 4819 ms (authors' files, measured), late by 9.5 ms on average and 22 ms"
        in second
    )
    assert "T_crit 39 ms (derived by us)" in second
    assert "+4.75 % on Llama-3.2-3B (paper, measured)" in last


def test_hardware_stands_beside_its_own_number_of_ranks_with_the_reason() -> None:
    (eight,) = findings(SETTINGS, rows(8, 1 << 22, "ranks", 2.0))
    assert "1.22 to 1.25 on 8 GPUs (paper, measured), 11 to 14 points below this" in eight
    assert "a kernel that adds" in eight
    (four,) = findings(SETTINGS, rows(4, 1 << 21, "ranks", 2.0))
    assert "GPUs" not in four and "1.127 (public code, simulated)" in four


def test_what_auto_chose_is_said() -> None:
    auto = [{**rows(8, 1 << 22, "delay", delay)[0], "algorithm": "auto", "chosen": c} for delay, c in CHOSEN]
    said = "8 ranks, 4,194,304 bytes: auto took ring at 0.100 s, stragglar at 0.400 s."
    assert list(findings(SETTINGS, auto)) == [said]


CHOSEN = ((0.4, "stragglar"), (0.1, "ring"))


def test_half_a_pair_claims_nothing() -> None:
    (ring, _) = rows(8, 1 << 22, "step", 0.73, all_reduce_share=0.2, expected_late=1.0)
    assert [said for said in findings(SETTINGS, [ring]) if "a step with Ring" in said] == []
    assert pytest.approx(0.268, abs=0.001) == SETTINGS.law(8, 1 << 22).critical_delay_s
