"""Results of a run that did not end: the sentence about them, the stamp, and the exit status of ``railyard plot``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from commands.main import main
from commands.run import experiment_of, parser_of
from experiments.redraw import redraw
from experiments.registry import find
from experiments.report import Drawn, Report
from measure.results.manifest import build_manifest
from measure.results.partial import cut_lines, partial
from measure.results.results import Results
from railyard.errors import ControlError
from railyard.scale import Scale
from railyard.timeline import Event


@pytest.mark.parametrize(
    ("manifest", "under_way", "sentence"),
    [
        ({"ended": "complete"}, False, None),
        ({"planned": 2, "ended": "complete"}, False, None),
        (
            {"planned": 8, "ended": "complete"},
            False,
            "PARTIAL 2 of 8 points: the run ended by itself, and the summary lacks the others",
        ),
        ({"planned": 8, "ended": "stopped: rank 3 died"}, False, "PARTIAL 2 of 8 points: stopped: rank 3 died"),
        ({"planned": None, "ended": "stopped: x"}, False, "PARTIAL: 2 points: stopped: x"),
        ({"planned": 8}, True, "PARTIAL 2 of 8 points: the run is still under way"),
        ({"planned": 8}, False, "PARTIAL 2 of 8 points: the run was killed, or could not write why it ended"),
    ],
)
def test_results_without_all_points_say_so(manifest: dict[str, Any], under_way: bool, sentence: str | None) -> None:
    assert partial(manifest, [{}, {}], under_way=under_way) == sentence


def test_a_row_counts_for_the_repeats_that_are_in_it() -> None:
    row = {"repeats": 2, "samples": {"time_s": [1.0, 1.1, None]}}
    manifest = {"planned": 6, "ended": "complete", "experiment": {"repeats": 3}}
    assert partial(manifest, [row, row]) is None
    said = partial(manifest, [row])
    assert said is not None and said.startswith("PARTIAL 3 of 6 measurements (3 of each point): ")


def test_cut_lines_are_counted_over_all_logs() -> None:
    cut = [Event(0.0, "run", "cut", None, {"lines": lines}) for lines in (1, 2)]
    assert cut_lines([]) is None
    assert cut_lines(cut[:1]) == "1 line of the logs is not readable, and left out"
    assert cut_lines(cut) == "3 lines of the logs are not readable, and left out"


def stopped(folder: Path, **manifest: Any) -> Path:
    """An allocation study of which the manifest says ``manifest``."""
    plain = build_manifest(experiment={"experiment": "allocation"}, seed=1, scale=Scale(1.0), plans=[], groups={})
    results = Results.create(folder, {**plain, "planned": 4, **manifest})
    results.free()
    return folder


def test_plot_of_a_partial_folder_says_so_and_ends_with_9(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sentence = "PARTIAL 0 of 4 points: stopped: by a signal"
    folder = stopped(tmp_path / "a", ended="stopped: by a signal")
    (folder / "points" / "000").mkdir(parents=True)
    (folder / "points" / "000" / "g0.jsonl").write_text('{"t": 1.0, "source": "ru')
    assert main(["plot", str(folder)]) == 9
    assert f"\n1 line of the logs is not readable, and left out\n{sentence}\n" in capsys.readouterr().out
    for option in ("--json", "--quiet"):
        assert main(["plot", str(folder), option]) == 9
        printed = capsys.readouterr()
        assert sentence not in printed.out and f"railyard: {sentence}\n" in printed.err
    assert main(["plot", str(stopped(tmp_path / "b", ended="complete", planned=0))]) == 0
    assert main(["plot", str(stopped(tmp_path / "c", ended="complete"))]) == 9
    assert "PARTIAL 0 of 4 points: the run ended by itself" in capsys.readouterr().out


def test_the_tables_of_a_folder_on_a_full_disk_are_shown_before_the_figures_fail(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "trace.json"))

    monkeypatch.setattr("commands.plot.redraw", full)
    assert main(["plot", str(stopped(tmp_path / "a", ended="stopped: by a signal"))]) == 3
    said = capsys.readouterr()
    assert "PARTIAL 0 of 4 points" in said.out and "trace.json cannot be written: No space left" in said.err


def test_a_run_that_is_stopped_after_an_act_names_it_with_and_without_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    act = Event(1.0, "controller", "manual", None, {"what": "fail", "rail": "rail0", "ports": [3]})

    def run(self: Any, runner: Any) -> None:
        folder = runner.record.point_folder(0, mode="m", plan="p", title="on-demand")
        runner.record.add_events([act], folder)
        raise ControlError("port 3 of rail0 was failed over REST")

    monkeypatch.setattr(find("allocation"), "run", run)
    assert main(["run", "allocation", "--no-figures", "--out", str(tmp_path / "out")]) == 5
    said = "ACTED ON: 1 act over REST in 1 measurement (on-demand), somebody made port 3 of rail0 fail over"
    printed = capsys.readouterr()
    assert said in printed.out and printed.err.endswith("railyard: port 3 of rail0 was failed over REST\n")
    main(["plot", str(tmp_path / "out")])
    assert said in " ".join(capsys.readouterr().out.split())


def test_the_figures_of_a_run_that_somebody_acted_on_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []

    def png(figure: Any, scale: Any, *, note: str, **more: Any) -> bytes:
        notes.append(note)
        return b""

    monkeypatch.setattr("measure.figures.style.png", png)
    kind = find("allocation")
    report = Report(tables=lambda rows: (), figures=lambda recorded: [Drawn("x", cast(Any, object()), (), "Known.")])
    monkeypatch.setattr(kind, "report", lambda: report)
    acts = [{"point": 0, "title": "on-demand", "acts": 1, "first": "somebody rewired rail0 over REST: 1-4"}]
    redraw(stopped(tmp_path / "acted", ended="complete", acts=acts))
    redraw(stopped(tmp_path / "own", ended="complete"))
    assert notes[0].startswith("Known. ACTED ON: 1 act over REST in 1 measurement (on-demand)") and notes[1] == "Known."


def test_a_run_that_leaves_rows_out_ends_with_9_and_one_that_cannot_know_them_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--study", "fragmentation", "--clusters", "1", "--racks", "1"]
    words = ["run", "allocation", *small, "--no-figures", "--out"]
    monkeypatch.setattr(Results, "events", None)  # without figures no events are read
    assert main([*words, str(tmp_path / "whole")]) == 0
    whole = Results.open(tmp_path / "whole")
    assert whole.manifest()["planned"] == len(whole.rows()) == 4
    kind = find("allocation")
    run = kind.run

    def run_with_a_cut_log(self: Any, runner: Any) -> None:
        folder = runner.record.point_folder(0, mode="m", plan="p", title="t")
        runner.record.add_events([Event(0.0, "run", "cut", None, {"lines": 2})], folder)
        run(self, runner)

    monkeypatch.setattr(kind, "points", lambda self: 5)
    monkeypatch.setattr(kind, "run", run_with_a_cut_log)
    assert main([*words, str(tmp_path / "short")]) == 9
    said = capsys.readouterr().out
    assert "PARTIAL 4 of 5 points" in said and "2 lines of the logs are not readable, and left out" in said


@pytest.mark.parametrize(
    ("kill", "rows"),
    [
        ("1@4.5", 2 + 2),  # the job, and its neighbour on each of two fabrics
        ("16@4.5", None),  # a spare
        ("1@2.5,2@5.5", None),  # the first kill moves the job of fabric migrate, so that the second hits no member
        ("1@4.5,2@+0.5", None),  # the second may come after the end of the job
    ],
)
def test_the_rows_of_one_kill_of_a_member_are_planned_and_no_others(kill: str, rows: int | None) -> None:
    kind = find("failover")
    words = ["--fabrics", "photonic,migrate" if rows is None else "photonic,e1", "--kill", kill]
    assert experiment_of(kind, parser_of(kind).read(words)).points() == rows


def test_a_figure_is_stamped(tmp_path: Path) -> None:
    from matplotlib.figure import Figure

    from measure.figures.style import png

    plain, figure = png(Figure(), None, faithful=True), Figure()
    assert png(figure, None, faithful=True, partial="PARTIAL 1 of 4 points: stopped: x") != plain
    assert "PARTIAL 1 of 4 points: stopped: x" in [text.get_text() for text in figure.texts]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rails", ["--workload", "smoke", "--modes", "electrical,on-demand", "--delays", "0,100"]),
        ("collective", ["--algorithms", "ring,direct", "--sizes", "4K,64K"]),
        ("server-fabric", ["--study", "iperf3,recovery", "--shapes", "2x1x1"]),
    ],
)
def test_an_experiment_knows_how_many_rows_it_gives(name: str, words: list[str]) -> None:
    kind = find(name)
    experiment = experiment_of(kind, parser_of(kind).read(words))
    assert experiment.points() == len(list(experiment.predict()))
