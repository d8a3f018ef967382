"""The report of a campaign and of a long run: 80 columns, counts, and the command that repeats a failure."""

from __future__ import annotations

import subprocess
from io import StringIO

import pytest
from rich.console import Console

from experiments.command.run import as_typed, experiment_of, parser_of
from experiments.faults.expectation import Outcome
from experiments.faults.experiment import Faults, FaultsSettings
from experiments.faults.fault import chosen
from experiments.faults.report import REPORT, failed
from experiments.faults.row import FaultRow
from experiments.faults.soak import await_end
from experiments.faults.soak_row import LEAST_POINTS, SoakRow, growths
from experiments.faults.victims import victim_of
from experiments.report import show
from measure.results.plain import plain
from measure.results.row import Row
from railyard.errors import ConfigError, MachineError


def campaign() -> list[Row]:
    rows = []
    for fault in chosen(1, 60):
        row = FaultRow.of(fault, victim_of(fault).name)
        row.judge(fault, Outcome(None, "") if fault.number == 7 else Outcome(3, "railyard: x", cleaned_s=0.5))
        row.ok = fault.number != 7
        rows.append(row)
    rows[9].ok, rows[9].sentence = None, "not possible here: the tool ss is missing"
    found: list[Row] = plain([row.to_json() for row in rows])
    return found


def printed(rows: list[Row]) -> str:
    console = Console(file=StringIO(), width=80)
    show(REPORT, rows, {}, packets=False, console=console)
    return console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def test_the_table_fits_into_a_terminal_and_a_failure_says_how_to_repeat_it() -> None:
    text = printed(campaign())
    assert "…" not in text
    assert "59 faults: 58 ok; 1 hang, 0 tracebacks" in text
    assert "1 fault not possible here: the tool ss is missing" in text
    assert "railyard run faults --seed 1 --only 7" in " ".join(text.split())
    assert printed(campaign()[::-1]) == text  # rows are kept in the order in which their runs ended


def test_the_exit_status_is_1_if_a_run_did_not_end_as_documented() -> None:
    experiment = Faults(FaultsSettings())
    rows = campaign()
    assert experiment.status(rows) == 1
    assert experiment.status([row for row in rows if row["ok"] is not False]) == 0
    assert experiment.status([]) == 1


def soak(memory_per_point: float, points: int = 400) -> list[Row]:
    rows = [
        SoakRow(
            point=point,
            descriptors={"main": 40},
            memory_bytes={"main": round(1e8 + memory_per_point * point)},
            run_folder_bytes=1000,
            processes=7,
        )
        for point in range(points)
    ]
    found: list[Row] = plain([row.to_json() for row in rows])
    return found


def test_what_grows_in_a_long_run_is_found() -> None:
    assert not failed(soak(0.0))
    assert not failed(soak(5e3))
    growing = soak(5e4)
    assert failed(growing)
    (grown,) = [each for each in growths(growing) if not each.flat]
    assert (grown.process, grown.what) == ("main", "memory_bytes")
    assert abs(grown.per_point - 5e4) < 4e3
    assert "use of the machine in 400 points" in printed(growing)
    assert growths(soak(0.0, points=2)) == []


def test_a_process_that_was_not_seen_is_not_called_flat_and_one_that_was_missed_once_has_not_shrunk() -> None:
    rows = soak(0.0, points=3)
    rows[-1] = {**rows[-1], "memory_bytes": {}}
    assert {each.process for each in growths(rows)} == {"main", "run"} and not failed(rows)
    for points in range(1, LEAST_POINTS):
        assert growths(soak(0.0, points - 1)) == []  # a run has no row of its last point
    assert growths(soak(0.0, points=LEAST_POINTS - 1))


def test_a_file_that_a_point_under_way_has_open_is_no_growth_and_one_kept_by_each_point_is() -> None:
    rows = soak(0.0)
    assert not failed([*rows[:-20], *({**row, "descriptors": {"main": 42}} for row in rows[-20:])])
    assert failed([{**row, "descriptors": {"main": 40 + row["point"]}} for row in rows])


def test_the_most_of_some_points_is_compared_since_shared_memory_is_low_for_one() -> None:
    rows = soak(0.0)
    shared = {"main": 5_000_000}
    low = [{**row, "memory_bytes": shared} if row["point"] in (105, 395) else row for row in rows]
    assert not failed(low)
    grown = [{**row, "memory_bytes": {"main": 150_000_000}} if row["point"] >= 390 else row for row in low]
    (growth,) = [each for each in growths(grown) if not each.flat]
    assert (growth.first, growth.last) == (100_000_000, 150_000_000)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--soak", "0"], "--soak: must be at least 4, not '0'"),
        (["--soak", "3"], "--soak: must be at least 4, not '3'"),
        (["--soak", "4", "--only", "1"], "--only: is for faults, and a soak makes none; leave one of the two out"),
        (
            ["--only", "1", "--count", "9"],
            "--count: is not used where faults are named by their numbers; leave one of the two out",
        ),
    ],
)
def test_options_that_would_be_ignored_are_refused(options: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parsed = parser_of(Faults).read(options)
        try:
            experiment_of(Faults, parsed)
        except ConfigError as error:
            raise as_typed(error, Faults, parsed) or error from None
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("options", "points"),
    [([], 60), (["--quick"], 12), (["--quick", "--only", "3,4"], 2), (["--soak", "9"], None)],
)
def test_a_campaign_knows_how_many_rows_it_gives(options: list[str], points: int | None) -> None:
    assert experiment_of(Faults, parser_of(Faults).read(options)).points() == points


@pytest.mark.parametrize(("script", "says"), [("exit 3", "ended with status 3"), ("exec sleep 60", "did not end")])
def test_a_long_run_that_does_not_end_well_after_its_last_point_is_an_error(script: str, says: str) -> None:
    with subprocess.Popen(["sh", "-c", script]) as process:
        with pytest.raises(MachineError, match=f"the run of 7 points {says}"):
            await_end(process, 7, 10.0 if "exit" in script else 0.05)
        process.kill()


@pytest.mark.parametrize("status", [0, 8])
def test_a_long_run_may_end_faithful_or_not(status: int) -> None:
    with subprocess.Popen(["sh", "-c", f"exit {status}"]) as process:
        await_end(process, 7, 10.0)
