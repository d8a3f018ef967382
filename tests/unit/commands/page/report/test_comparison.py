"""The comparison of two folders: what differs, the numbers with their intervals, marks and sentences."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from commands.main import main
from commands.page.report.comparison import COLUMNS, Side, check_comparable, comparison, unit_of
from experiments.collectives.row import TrialRow
from experiments.rails.experiment import Rails
from experiments.rails.row import RailRow
from experiments.report import Table, as_rich
from measure.results.manifest import build_manifest
from measure.results.partial import COMPLETE
from measure.results.plain import plain
from measure.results.results import Results
from measure.results.row import ResultRow, columns
from measure.results.summary import Summary
from railyard.errors import ConfigError
from railyard.scale import Scale

Made = Callable[..., Path]


def rail(mode: str, delay_ms: float, *step_s: float, faithful: bool = True, **more: Any) -> RailRow:
    row = RailRow(
        workload="w", fabric="ocs", mode=mode, policy="opus", reconfiguration_delay_ms=delay_ms, link_recovery_ms=0.0,
        step_time_s=sorted(step_s)[len(step_s) // 2], predicted_step_time_s=1.0, faithful=faithful, **more,
    )  # fmt: skip
    row.verdict, row.repeats = "faithful" if faithful else "NOT FAITHFUL: timers", len(step_s)
    row.samples = {"step_time_s": list(step_s)} if len(step_s) > 1 else {}
    return row


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Makes a results folder of rows, with changes to its settings and its manifest."""

    def make(name: str, rows: list[ResultRow], settings: Mapping[str, Any] | None = None, **more: Any) -> Path:
        experiment = {"experiment": "rails", "seed": 1, "workload": "w", "fabric": {"rate_gbps": 100.0}, "repeats": 3}
        known: dict[str, Any] = {"planned": len(rows), "ended": COMPLETE, "machine": {"cpu": "EPYC"}, **more}
        scale = known.pop("scale", Scale(0.01, 2.0))
        manifest = build_manifest(
            experiment={**experiment, **(settings or {})}, seed=1, scale=scale, plans=[], groups={}, datapath="bpf"
        )
        results = Results.create(tmp_path / name, {**manifest, **known})
        kind = type(rows[0]) if rows else RailRow
        results.write_rows(Summary(plain(row.to_json()) for row in rows), columns(kind))
        results.free()
        return results.folder

    return make


def compared(a: Path, b: Path) -> dict[str, Any]:
    found = comparison(Side.read(a), Side.read(b))
    json.dumps(found, allow_nan=False)
    return found


def test_a_number_has_both_estimates_and_the_difference_with_its_interval(made: Made) -> None:
    a = made("a", [rail("on-demand", 0, 10.0, 10.1, 9.9, point=4), rail("on-demand", 200, 12.0)])
    b = made("b", [rail("on-demand", 200, 12.6), rail("on-demand", 0, 11.0, 11.2, 11.1, point=2)])
    found = compared(a, b)
    assert found["names"] == ["a", "b"] and found["same_experiment"] is True
    table = found["tables"][0]
    assert (table["title"], table["main"], table["name"]) == ("step time, s", True, "step_time_s")
    first, second = table["rows"]
    assert (first["title"], first["unit"], first["points"]) == ("on-demand 0 ms", "s", [[4], [2]])
    assert first["a"]["value"] == 10.0 and first["a"]["n"] == 3 and first["a"]["low"] < 10 < first["a"]["high"]
    # means 10.0 and 11.1, standard errors 0.1/sqrt(3) each, 4 degrees of freedom: 2.776445 * sqrt(2/3) * 0.1
    half = 2.776445 * (2 / 3) ** 0.5 * 0.1
    assert first["difference"] == pytest.approx(1.1)
    assert first["interval"] == pytest.approx([1.1 - half, 1.1 + half], rel=1e-5)
    assert first["percent"] == pytest.approx(11.0) and first["percent_interval"][0] < 11 < first["percent_interval"][1]
    assert first["cells"] == ["on-demand 0 ms", "10 ± 0.25", "11.1 ± 0.25", "+1.1", "+0.873 to +1.33", "+11.00",
                              "+8.62 to +13.43", "yes"]  # fmt: skip
    assert (second["interval"], second["percent_interval"]) == (None, None)
    assert second["cells"] == ["on-demand 200 ms", "12", "12.6", "+0.6", "-", "+5.00", "-", "yes"]
    assert len(first["cells"]) == len(COLUMNS) == len(table["columns"])
    assert [(column["name"], column["wide"]) for column in table["columns"]][3:7] == [
        ("B - A", True), ("95 % interval", True), ("B - A %", False), ("95 % interval %", False)
    ]  # fmt: skip
    assert any("once" in each and "--repeats" in each for each in found["remarks"]) and found["notes"] == []
    assert any("Welch" in each and "difference of the means" in each for each in found["remarks"])


def test_sentences_about_intervals_are_those_of_measured_numbers(made: Made) -> None:
    """The numbers of the model have no repeats, and need none; neither does a run of the model alone."""
    repeated = [rail("on-demand", 0, *(10 + n / 9 for n in range(6)))]
    said = compared(made("a", repeated), made("b", repeated))["remarks"]
    assert not any("once" in each or "Welch" in each for each in said)
    assert any("Price and Bonett" in each for each in said) and any("bold" in each for each in said)
    row = rail("on-demand", 0, 1.0)
    row.faithful = None
    said = compared(made("c", [row], predicted=True), made("d", [row], predicted=True))["remarks"]
    assert not any("nterval" in each for each in said)
    said = compared(made("e", [row]), made("f", [row]))["remarks"]
    assert any("once" in each for each in said), "measured without a verdict, as by bench"
    row.computed = True
    assert not any("nterval" in each for each in compared(made("g", [row]), made("h", [row]))["remarks"])


def test_code_of_ones_own_may_be_compared_from_two_places(made: Made) -> None:
    rows = [rail("on-demand", 0, 1.0)]
    folders = [made(name, rows, {"experiment": f"/{name}/mine.py:Mine"}) for name in ("a", "b")]
    with pytest.raises(ConfigError, match="only runs of one experiment"):
        check_comparable(folders)
    check_comparable(folders, kind=Rails)


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_cell_is_cut_on_the_terminal(made: Made, width: int) -> None:
    """Names of points go on in the next line; of numbers, those that are said twice are left out."""
    long = "a-mode-with-a-name-of-thirty-letters"
    found = compared(
        made("a", [rail(long, 0, 1.302, 1.31, 1.29), rail("x", 0, 1.234e-5, 1.244e-5, 1.3e-5)]),
        made("b", [rail(long, 0, 1.311, 1.33, 1.35), rail("x", 0, 4.321e-4, 4.421e-4, 4.5e-4)]),
    )
    console = Console(width=width, record=True, file=io.StringIO())
    console.print(as_rich(Table("", COLUMNS, found["tables"][0]["rows"]), width))
    said = console.export_text()
    assert "…" not in said and max(map(len, said.splitlines())) <= width
    for number in ("1.302 ± 0.025", "1.33 ± 0.048", "+2.15", "-0.77 to +5.42"):
        assert number in said, said
    assert ("+0.028" in said) is (width == 160)


def test_few_repeats_in_80_columns_are_lines_of_their_own(made: Made) -> None:
    found = compared(
        made("a", [rail("on-demand", 100, 1.3, 1.31, 1.29, faithful=False)]),
        made("b", [rail("on-demand", 100, 1.4, 1.33, 1.35, faithful=False)]),
    )
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(as_rich(Table("", COLUMNS, found["tables"][0]["rows"]), 80))
    assert len(console.export_text().splitlines()) == 3


def test_rows_without_a_partner_and_rows_that_are_not_faithful_are_marked(made: Made) -> None:
    a = made("a", [rail("on-demand", 0, 1.0, faithful=False), rail("on-demand", 50, 1.0, point=7)])
    b = made("b", [rail("on-demand", 0, 1.0), rail("on-demand", 0, 2.0)][:1])
    found = compared(a, b)
    assert found["unmatched"] == [{"run": 0, "title": "on-demand 50 ms", "points": [7]}]
    row = found["tables"][0]["rows"][0]
    assert row["faithful"] == [False, True] and row["cells"][-1] == "A: NO"
    assert any(note.startswith("A is NOT FAITHFUL in 1 of 2 rows") for note in found["notes"])


def test_what_differs_is_listed_settings_first(made: Made) -> None:
    a = made("a", [rail("on-demand", 0, 1.0)])
    b = made(
        "b",
        [rail("on-demand", 0, 1.0)],
        {"seed": 3, "fabric": {"rate_gbps": 400.0}, "rest_token_file": "x"},
        scale=Scale(0.02, 2.0),
        versions={"railyard": "0.9.9"},
        machine={"cpu": "Xeon", "load_before": [1, 2, 3]},
        git={"commit": "abc", "changed": True},
    )
    found = {each["key"]: each for each in compared(a, b)["differs"]}
    assert found["seed"] == {"group": "setting", "key": "seed", "values": ["1", "3"]}
    assert found["fabric.rate_gbps"]["values"] == ["100", "400"]
    assert found["rate"] == {"group": "scale", "key": "rate", "values": ["1/100", "1/50"]}
    assert found["cpu"]["values"] == ["EPYC", "Xeon"] and found["commit"]["values"][1] == "abc (changed)"
    assert found["railyard"]["values"][1] == "0.9.9"
    assert not {"rest_token_file", "load_before", "workload"} & found.keys()
    assert next(iter(found)) == "seed"
    assert any("scaled differently" in note for note in compared(a, b)["notes"])
    assert not any("scaled differently" in note for note in compared(a, a)["notes"])


def test_partial_and_predicted_runs_say_so(made: Made) -> None:
    a = made("a", [rail("on-demand", 0, 1.0)], planned=5)
    b = made("b", [rail("on-demand", 0, 1.0)], predicted=True)
    notes = compared(a, b)["notes"]
    assert any(note.startswith("A: PARTIAL 1 of 5") for note in notes)
    assert any(note.startswith("B is MODEL ONLY") for note in notes)


def test_numbers_that_are_equal_everywhere_take_no_table(made: Made) -> None:
    a = made("a", [rail("on-demand", 0, 1.0, refusals=0, hidden_s=1.0)])
    b = made("b", [rail("on-demand", 0, 1.0, refusals=0, hidden_s=2.0)])
    found = compared(a, b)
    assert [(table["name"], table["main"]) for table in found["tables"]] == [
        ("step_time_s", True),
        ("hidden_s", False),
    ]
    assert any("refusals" in note and "step time of the model" in note for note in found["remarks"])


def test_two_experiments_are_refused(made: Made) -> None:
    row = TrialRow(
        study="s", algorithm="ring", collective="all-reduce", n=8, bytes=1, fabric="ocs", port_gbps=1, mtu=1500,
        rounds=1, second_phase_rounds=0,
    )  # fmt: skip
    a, b = made("a", [rail("on-demand", 0, 1.0)]), made("b", [row], {"experiment": "collective"})
    with pytest.raises(ConfigError, match="a is of rails and b of collective; only runs of one experiment"):
        compared(a, b)


def test_empty_runs_are_no_error(made: Made) -> None:
    found = compared(made("a", []), made("b", [rail("on-demand", 0, 1.0)]))
    assert found["tables"] == [] and len(found["unmatched"]) == 1
    assert "No point of one run is in the other." in found["notes"]


@pytest.mark.parametrize(
    ("name", "unit"),
    [("step_time_s", "s"), ("busbw_gbps", "Gb/s"), ("busbw_before_gb_s", "GB/s"), ("p50_wall_ms", "ms wall-clock"),
     ("bindings_per_s", "1/s"), ("duty_cycle", ""), ("slots", "")],
)  # fmt: skip
def test_the_unit_is_in_the_name(name: str, unit: str) -> None:
    assert unit_of(name) == unit


def test_bad_folders_are_one_sentence(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = made("a", [rail("on-demand", 0, 1.0)])
    for arguments, says in (
        ([str(tmp_path)], "is not a Railyard results folder"),
        ([str(folder), str(tmp_path / "none")], "it does not exist"),
        ([str(folder)] * 2, "is compared with itself; name two different folders"),
        ([str(folder)] * 3, "compares two folders at most, not 3"),
        ([str(folder), "--all"], "--all: is about two folders"),
        ([str(folder), "--wide"], "--wide: is about two folders"),
        ([str(folder), "--out", str(tmp_path)], "is a folder; name a file"),
        ([str(folder), "--out", str(tmp_path / "no" / "x.html")], "is in no folder"),
    ):
        assert main(["report", *arguments]) == 2
        err = capsys.readouterr().err
        assert says in err and err.count("\n") == 1
