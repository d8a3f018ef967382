"""Repeats of an experiment: their order, attempts that are made again, and what is kept after each piece."""

from __future__ import annotations

import io
import tracemalloc
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from fabric_plans import rail_plan
from rich.console import Console

from commands.run import _report
from experiments.progress import RunProgress
from experiments.redraw import read_folder
from experiments.registry import ENTRIES, find
from experiments.repeats import Piece, RepeatedExperiment, order
from experiments.report import Report
from experiments.runner import Runner
from experiments.settings import RepeatedSettings, UnscaledSection
from measure.metrics.checks import Check, Verdict
from measure.metrics.load import ADVICE
from measure.metrics.point import Point
from measure.results.results import REPORT, Results
from measure.results.row import MeasuredRow, ResultRow
from railyard.scale import Scale
from railyard.timeline import Event

BAD = Verdict(False, (Check("timer lag", 0.1, 0.002, "s", False, "timers were late"),))
OFF = Verdict(False, (Check("model", 0.2, 0.1, "", False, "the step is +20% off the model"),))
GOOD = Verdict(True, ())


def busy(name: str, processors: float) -> Verdict:
    says = f"other processes kept {processors:.2f} of 2 processors busy ({name} {processors:.2f}), more than 0.2"
    check = Check("other processes", processors, 0.2, "processors", False, says, largest=((name, processors),))
    return Verdict(False, (check,))


STOLEN = Verdict(False, (Check("other guests", 0.1, 0.04, "", False, "other guests of the hardware took 10.0%"),))


@dataclass(kw_only=True)
class NumberRow(MeasuredRow):
    main: ClassVar[tuple[str, ...]] = ("number",)

    piece: str
    number: float | None = None
    ratio: float | None = None


class NumberSettings(RepeatedSettings):
    scale: UnscaledSection = UnscaledSection()


class Numbers(RepeatedExperiment[NumberSettings]):
    """Three pieces, of which the verdicts are given; the number of a row is that of its measurement."""

    name = "numbers"
    Settings = NumberSettings
    rows = (NumberRow,)
    verdicts: Iterator[Verdict]

    def __init__(self, verdicts: Sequence[Verdict] = (), **values: Any) -> None:
        super().__init__(NumberSettings(**values))
        self.verdicts, self.seen = iter(verdicts), list[str]()

    def points(self) -> int:
        return 3

    def pieces(self) -> list[Piece]:
        return [Piece(name, name) for name in "abc"]

    def measure(self, runner: Runner, piece: Piece) -> list[NumberRow]:
        verdict = next(self.verdicts, GOOD)
        if verdict is None:
            raise KeyboardInterrupt
        self.seen.append(piece.of)
        row = NumberRow(piece=piece.of, number=float(len(self.seen)), point=runner.next_number())
        row.judge(verdict)
        return [row]


class Related(Numbers):
    def relate(self, rows: Sequence[MeasuredRow]) -> None:
        found = [row for row in rows if isinstance(row, NumberRow)]
        base = next((row.number for row in found if row.piece == "a"), None)
        for row in found:
            row.ratio = row.number / base if base and row.number else None


def run(experiment: Numbers, folder: Path) -> Results:
    with Runner(experiment, folder / "out", RunProgress()) as runner:
        experiment.run(runner)
    return Results.open(folder / "out")


def test_the_order_is_drawn_for_each_repeat_from_the_seed_and_as_declared_for_a_single_one() -> None:
    assert order(8, seed=5, repeat=0, repeats=1) == list(range(8))
    drawn = [order(8, seed=1, repeat=repeat, repeats=3) for repeat in range(3)]
    assert drawn == [order(8, seed=1, repeat=repeat, repeats=3) for repeat in range(3)]
    assert len({tuple(each) for each in drawn}) == 3 and all(sorted(each) == list(range(8)) for each in drawn)
    assert drawn[0] != order(8, seed=2, repeat=0, repeats=3)


def test_every_piece_is_measured_in_every_repeat_and_the_rows_are_in_their_order(tmp_path: Path) -> None:
    experiment = Related(repeats=3)
    results = run(experiment, tmp_path)
    rows = results.rows()
    assert [row["piece"] for row in rows] == ["a", "b", "c"]
    drawn = [["abc"[place] for place in order(3, 1, repeat, 3)] for repeat in range(3)]
    assert experiment.seen == [piece for each in drawn for piece in each]
    for row in rows:
        assert row["samples"]["number"] == [each.index(row["piece"]) + 1 + 3 * i for i, each in enumerate(drawn)]
        assert (row["repeats"], row["attempts"], row["faithful"]) == (3, 3, True)
    base = rows[0]["samples"]["number"]
    for row in rows[1:]:
        pairs = zip(row["samples"]["number"], base, strict=True)
        assert row["samples"]["ratio"] == pytest.approx([number / other for number, other in pairs])
    manifest = results.manifest()
    assert manifest["planned"] == 9 and read_folder(results).partial is None
    assert [each["piece"] for each in manifest["attempts"]] == experiment.seen
    assert [each["points"] for each in manifest["attempts"]] == [[number] for number in range(9)]


def test_what_is_not_faithful_is_measured_again_and_all_attempts_are_recorded(tmp_path: Path) -> None:
    experiment = Numbers([BAD, BAD, GOOD, GOOD, BAD, BAD, BAD], repeats=1, attempts=3)
    results = run(experiment, tmp_path)
    assert "".join(experiment.seen) == "aaabccc"
    a, b, c = results.rows()
    assert [(row["number"], row["attempts"], row["faithful"]) for row in (a, b, c)] == [
        (3, 3, True),
        (4, 1, True),
        (7, 3, False),
    ]
    said = [(each["piece"], each["attempt"], each["faithful"]) for each in results.manifest()["attempts"]]
    assert said[:3] == [("a", 1, False), ("a", 2, False), ("a", 3, True)]
    first = results.manifest()["attempts"][0]
    assert first["verdict"] == "NOT FAITHFUL: timers were late"
    assert (first["place"], first["disturbed"]) == (0, True)


def test_what_is_far_off_is_not_faithful_and_is_neither_measured_again_nor_left_out(tmp_path: Path) -> None:
    experiment = Numbers([GOOD, OFF], repeats=1)
    results = run(experiment, tmp_path)
    assert "".join(experiment.seen) == "abc"
    assert [(row["number"], row["faithful"]) for row in results.rows()] == [(1, True), (2, False), (3, True)]
    assert [each["disturbed"] for each in results.manifest()["attempts"]] == [False] * 3


def test_an_attempt_that_raises_leaves_the_rows_of_the_one_before(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(Numbers([GOOD, BAD, None], repeats=1), tmp_path)  # type: ignore[list-item]
    rows = Results.open(tmp_path / "out").rows()
    assert [(row["number"], row["attempts"], row["faithful"]) for row in rows] == [(1, 1, True), (2, 1, False)]


def test_the_summary_is_written_at_first_and_at_last_and_seldom_in_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, written = [1000.0], list[int]()
    whole = Runner.replace
    monkeypatch.setattr("experiments.repeats.time", SimpleNamespace(monotonic=lambda: now[0]))

    def counted(self: Runner, rows: Sequence[ResultRow]) -> None:
        written.append(len(rows))
        whole(self, rows)

    monkeypatch.setattr(Runner, "replace", counted)

    class Slow(Related):
        def measure(self, runner: Runner, piece: Piece) -> list[NumberRow]:
            now[0] += 4.0
            return super().measure(runner, piece)

    results = run(Slow(repeats=2), tmp_path)
    assert written == [1, 3, 3], "after the pieces 1, 4 and at the end"
    assert all(len(row["samples"]["ratio"]) == 2 for row in results.rows())


@pytest.mark.parametrize(
    ("verdicts", "load"),
    [
        ([busy("qemu", 1.2), busy("qemu", 1.5)], "qemu 1.35 processors"),
        ([STOLEN] * 2, "other guests of the hardware"),
    ],
)
def test_a_load_that_disturbed_every_attempt_at_the_first_point_costs_no_more_attempts(
    tmp_path: Path, verdicts: list[Verdict], load: str
) -> None:
    experiment = Numbers([*verdicts, verdicts[0]], repeats=1, attempts=2, give_up=True)
    console = Console(file=io.StringIO(), width=1000)
    with Runner(experiment, tmp_path / "out", RunProgress(console)) as runner:
        experiment.run(runner)
    assert "".join(experiment.seen) == "aabc", "the others once each, also if they are disturbed"
    results = Results.open(tmp_path / "out")
    assert [(row["attempts"], row["faithful"]) for row in results.rows()] == [(2, False), (1, False), (1, True)]
    assert results.manifest()["gave_up"] == load
    assert read_folder(results).notes == [
        f"After the first point none was measured again, as one load disturbed every attempt at it: {load}."
    ]
    assert isinstance(console.file, io.StringIO)
    assert [line for line in console.file.getvalue().splitlines() if "first point" in line] == [
        f"  the first point was disturbed 2 times by the same load ({load}): no point is measured again for it. "
        f"{ADVICE}"
    ]


@pytest.mark.parametrize(
    ("verdicts", "values", "seen"),
    [
        ([busy("qemu", 1), busy("tar", 1), busy("qemu", 1)], {}, "aabbc"),
        ([busy("qemu", 1), GOOD, busy("qemu", 1)], {}, "aabbc"),
        ([GOOD, busy("qemu", 1), busy("qemu", 1), busy("qemu", 1)], {}, "abbcc"),
        ([BAD, BAD, BAD], {}, "aabbc"),
        ([busy("qemu", 1)] * 6, {"give_up": False}, "aabbcc"),
        ([busy("qemu", 1)] * 6, {"attempts": 1}, "abc"),
    ],
)
def test_what_is_not_one_load_from_the_start_is_measured_again_for_every_point(
    tmp_path: Path, verdicts: list[Verdict], values: dict[str, Any], seen: str
) -> None:
    experiment = Numbers(verdicts, **{"repeats": 1, "attempts": 2, "give_up": True, **values})
    assert "gave_up" not in run(experiment, tmp_path).manifest()
    assert "".join(experiment.seen) == seen


@pytest.mark.parametrize("kind", [Numbers, Related])
def test_a_run_that_is_stopped_keeps_what_was_measured_and_counts_it(tmp_path: Path, kind: type[Numbers]) -> None:
    experiment = kind([*[GOOD] * 4, None], repeats=2)  # type: ignore[list-item]
    with pytest.raises(KeyboardInterrupt):
        run(experiment, tmp_path)
    results = Results.open(tmp_path / "out")
    assert sorted(row["repeats"] for row in results.rows()) == [1, 1, 2]
    assert read_folder(results).partial == "PARTIAL 4 of 6 measurements (2 of each point): stopped: by a signal"


@pytest.mark.parametrize("rows", [0, 1])
def test_a_run_that_is_stopped_has_a_report_of_its_rows_or_says_how_to_see_what_was_recorded(
    tmp_path: Path, rows: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Numbers, "report", staticmethod(lambda: Report(tables=lambda rows: ())))
    experiment, out = Numbers([*[GOOD] * rows, None], repeats=1), tmp_path / "out"  # type: ignore[list-item]
    runner = Runner(experiment, out, RunProgress())
    with pytest.raises(KeyboardInterrupt), runner:
        (out / "points").mkdir()
        experiment.run(runner)
    _report(experiment, runner, out, Namespace(json=None, wide=False, no_figures=False))
    said = capsys.readouterr().out
    assert (out / REPORT).exists() is (f"Report (opens in a browser): {out / REPORT}" in said) is (rows > 0)
    assert (f"what was recorded is in {out} (railyard report {out} shows it)" in said) is (rows == 0)


def test_predicted_timelines_are_written_once_each_and_not_held_in_memory(tmp_path: Path) -> None:
    plan = rail_plan(2)
    point = Point(0, "on-demand", plan, {}, Scale(1.0, 1.0))
    timeline = [Event(float(n), "agent", "compute", n + 1.0, {"rank": 0, "step": n}) for n in range(3000)]
    with Runner(Numbers(repeats=1), tmp_path / "out", RunProgress()) as runner:
        tracemalloc.start()
        for number, events in enumerate((timeline, timeline, timeline[1:])):
            runner.record.add_prediction(replace(point, number=number), "ocs", events)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        runner.add(NumberRow(piece="a"))
    heads = [event for event in Results.open(tmp_path / "out").predicted() if event.kind == "predicted"]
    assert [event["same_as"] for event in heads] == [0, 0, 2]
    assert held < 100_000, f"{held} bytes for timelines of {3000 * 60}"


def test_quick_measures_once_in_every_experiment_and_no_other_has_the_options() -> None:
    for entry in ENTRIES:
        kind = find(entry.name)
        repeated = issubclass(kind, RepeatedExperiment)
        assert ("attempts" in kind.Settings.model_fields) == repeated
        if repeated:
            assert (kind.quick_values()["repeats"], kind.quick_values()["give_up"]) == (1, True)
            settings = kind.Settings()
            assert isinstance(settings, RepeatedSettings)
            assert (settings.repeats, settings.attempts, settings.give_up) == (3, 3, False)
