"""The rows of a run as they are written."""

from __future__ import annotations

import json

from measure.results.summary import Summary


def test_a_summary_without_rows_is_an_empty_list_and_a_header() -> None:
    assert b"".join(Summary().json()) == b"[]\n"
    assert b"".join(Summary().csv(["mode"])) == b"mode\n"


def test_the_rows_come_back_as_plain_data_in_their_order() -> None:
    rows = Summary([{"mode": "native", "time_s": float("inf")}, {"mode": "on-demand", "checks": [(1, "ä")]}])
    plain = [{"mode": "native", "time_s": None}, {"mode": "on-demand", "checks": [[1, "ä"]]}]
    assert list(rows) == plain
    assert json.loads(b"".join(rows.json())) == plain
    assert b"".join(rows.csv(["mode", "time_s"])) == b"mode,time_s\nnative,\non-demand,\n"
