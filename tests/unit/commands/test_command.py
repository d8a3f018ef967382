"""The command ``railyard``: bad input is one sentence on standard error and an exit status, never a traceback."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from checkout import ROOT

from commands import completion, run
from commands.main import main
from controllers.northbound.messages import read_request
from experiments.rails.experiment import Rails
from experiments.rails.settings import RailSettings
from measure.live.calibration import default_calibration
from measure.results.manifest import build_manifest
from measure.results.results import Results
from railyard.errors import ConfigError
from railyard.protocol import encode, from_json
from railyard.scale import Scale


def test_too_many_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "rails", *["x"] * 2001]) == 2
    assert capsys.readouterr().err == "railyard: the command line has 2001 arguments; give at most 2000\n"


def test_help_of_an_action_is_about_the_action(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["cli", "--help"])
    said = capsys.readouterr().out
    assert said.startswith("usage: railyard run rails --cli [FILE.yaml] [options]\n\nMininet CLI on the fabric of the")


def test_what_an_action_or_a_prediction_has_not_is_neither_in_its_help_nor_completed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words, missing in ((["predict", "rails"], "--pcap"), (["cli"], "--out")):
        completed = completion.words(words)
        assert "--workload" in completed and missing not in completed
    assert "--pcap" in completion.words(["run", "rails"])
    with pytest.raises(SystemExit):
        main(["predict", "rails", "--help"])
    assert "--pcap" not in (said := capsys.readouterr().out) and said.startswith("usage: railyard predict rails ")


def test_no_arguments_are_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert capsys.readouterr().out.startswith("usage: railyard COMMAND")


def test_delays_under_the_floor_are_predicted_and_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    line = ["rails", "--workload", "smoke", "--modes", "on-demand", "--delays", "0.01", "--json"]
    assert main(["predict", *line]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["reconfiguration_delay_ms"] == 0.01 and row["predicted_step_time_s"] > 0
    assert main(["run", *line]) == 2
    assert "under the floor" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "spared"),
    [
        ((), True),
        (("--rate", "1/500"), False),
        (("--wait-quiet", "5"), False),
        (("--cluster", "here,10.0.0.2"), False),
        (("--time", "0.3"), False),  # at half the rate its transfers would be too short
    ],
)
def test_a_scale_that_is_chosen_leaves_processors_to_a_load_that_stays(
    words: tuple[str, ...], spared: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("measure.live.interference.steady_load", lambda: (0.5, "others are busy"))
    monkeypatch.setattr("experiments.rails.experiment.this_machine", lambda: default_calibration(("bpf", "ovs")))
    scales = []

    def measure(experiment: Rails, *_: object) -> int:
        scales.append(experiment.scale)
        return 0

    monkeypatch.setattr(run, "_measure", measure)
    assert main(["run", "rails", "--workload", "smoke", *words]) == 0
    assert (capsys.readouterr().err == "others are busy\n") == spared
    ((scale,), alone) = scales, Rails(RailSettings(workload="smoke")).scale
    assert scale.rate == (
        0.002 if "--rate" in words else pytest.approx(alone.rate / 2, rel=0.02) if spared else alone.rate
    )


def test_a_folder_that_cannot_be_taken_is_refused_before_the_load_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("measure.live.interference.steady_load", pytest.fail)
    (tmp_path / "notes.txt").touch()
    assert main(["run", "rails", "--workload", "smoke", "--out", str(tmp_path)]) == 2
    assert capsys.readouterr().err.startswith(f"railyard: --out: {tmp_path} is not empty")


def test_an_empty_file_key_means_rails(tmp_path: Path) -> None:
    path = tmp_path / "x.yaml"
    path.write_text("experiment:\nworkload: smoke\nmodes: [electrical]\n")
    assert main(["predict", str(path)]) == 0


def folder_of(path: Path, experiment: object) -> Results:
    manifest = build_manifest(experiment={}, seed=1, scale=Scale(1.0), plans=[], groups={})
    results = Results.create(path, {**manifest, "experiment": experiment, "ended": "complete"})
    results.free()
    return results


def test_a_results_folder_that_cannot_be_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = tmp_path / "evil.py"
    code.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n")
    cases = {
        r"manifest\.json: experiment\.experiment: is missing; the manifest of a run": folder_of(tmp_path / "a", {}),
        "whose code is not part of Railyard; name it": folder_of(tmp_path / "b", {"experiment": f"{code}:X"}),
        "cannot be read; run the experiment again": folder_of(tmp_path / "c", {"experiment": "rails"}),
    }
    (tmp_path / "c" / "summary.json").write_text("garbage")
    cases["row 0: experiment: is missing; restore the file"] = folder_of(tmp_path / "d", {"experiment": "rails"})
    (tmp_path / "d" / "summary.json").write_text('[{"checks": 1}]')
    for sentence, results in cases.items():
        assert main(["plot", str(results.folder)]) == 2
        said = capsys.readouterr().err
        assert re.search(sentence, said) and said.count("\n") == 1
    assert not (tmp_path / "executed").exists()


def test_a_folder_without_a_row_is_not_faithful(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = folder_of(tmp_path / "a", {"experiment": "rails"})
    assert main(["plot", str(results.folder), "--quiet"]) == 8
    assert main(["plot", str(results.folder)]) == 8
    assert "no point was measured" in capsys.readouterr().out


def test_no_field_of_a_body_replaces_the_operation() -> None:
    line = encode(None, "rewire", op="shutdown", request_id=1, self=2, switch="s1", circuits=[])
    assert from_json(line)["op"] == "rewire"
    with pytest.raises(ConfigError, match="there is no such key"):
        read_request(line)


def raising(error: OSError) -> Callable[[Sequence[str]], int]:
    def command(rest: Sequence[str]) -> int:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            OSError(errno.ENOSPC, "Disk full", "/proc/x/y"),
            r"/proc/x/y cannot be written: Disk full; 0\.0 of 0\.0 MB are free in /proc: make room there, or name "
            "another folder",
        ),
        (PermissionError(errno.EACCES, "Permission denied", "/a"), "/a cannot be used: Permission denied"),
        (OSError(errno.EMFILE, "Too many open files"), "the system refused an operation: Too many open files"),
    ],
)
def test_an_error_of_the_system_is_one_sentence(
    error: OSError, sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("commands.main._command", lambda name: raising(error))
    assert main(["run"]) == 3
    assert re.fullmatch(f"railyard: {sentence}\n", capsys.readouterr().err)


def test_a_full_disk_under_a_computed_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = tmp_path / "link"
    full.symlink_to("/dev/full")
    assert main(["run", "mesh", "--width", "3", "--height", "3", "--ports", "4", "--json", str(full)]) == 2
    assert "cannot be written (No space left on device); name another file" in capsys.readouterr().err


def ran(code: str) -> tuple[int, str]:
    """The exit status and the messages of a Python that runs code."""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


@pytest.mark.parametrize(("ignored", "status"), [(False, 130), (True, 0)])
def test_a_terminal_that_is_gone_stops_a_command_unless_under_nohup(ignored: bool, status: int) -> None:
    said = "import os, signal, sys; from commands import main as m;"
    said += f"signal.signal(signal.SIGHUP, signal.{'SIG_IGN' if ignored else 'SIG_DFL'});"
    said += "m._command = lambda name: lambda rest: os.kill(os.getpid(), signal.SIGHUP) or 0; sys.exit(m.main(['x']))"
    assert ran(said) == (status, "" if ignored else "railyard: stopped\n")


def test_a_further_ctrl_c_does_not_disturb_the_end_of_a_stopped_command() -> None:
    said = "import atexit, os, signal, sys; from commands import main as m\n"
    said += "def stop(rest=()):\n os.kill(os.getpid(), signal.SIGINT)\n"
    said += "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    said += "atexit.register(stop); m._command = lambda name: stop; sys.exit(m.main(['x']))"
    assert ran(said) == (130, "railyard: stopped\n")


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["--plan=x", "--channel=x", "--events=x"], 2)])
def test_a_controller_by_hand_with_a_wrong_environment_is_no_traceback(arguments: list[str], status: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "controllers.main", *arguments],
        cwd=ROOT,
        env={**os.environ, "RAILYARD_PARENT": "x"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = "controller: RAILYARD_PARENT: is set by Railyard, for the processes that it starts; unset it\n"
    assert (done.returncode, done.stderr) == (status, "" if status == 0 else said)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_traceback_and_go_to_no_file(closed: str, tmp_path: Path) -> None:
    opened = "import os, sys; from railyard.__main__ import main; sys.argv[1:] = []; status = main('list'); "
    opened += f"open({str(tmp_path / 'file')!r}, 'w').write(str(os.open('/', os.O_RDONLY))); sys.exit(status)"
    command = f'"$0" -P -c "$1" {closed}' if sys.version_info >= (3, 11) else f'"$0" -c "$1" {closed}'
    done = subprocess.run(["sh", "-c", command, sys.executable, opened], cwd=ROOT, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert int((tmp_path / "file").read_text()) > 2


def test_a_stopped_run_whose_terminal_is_gone_ends_as_stopped() -> None:
    """The terminal hangs up: the bar is still drawn, a report printed, and standard output not empty."""
    said = "import os, sys; from rich.console import Console; from commands import main as m\n"
    said += "from experiments.progress import RunProgress\n"
    said += "def run(rest):\n with RunProgress(Console(force_terminal=True)) as bar:\n  bar.begin('point', 1.0, 2)\n"
    said += "  print('ready', flush=True); input(); bar.say('x')\n  print('a row', end=''); raise KeyboardInterrupt\n"
    said += "m._command = lambda name: run; sys.exit(m.main(['x']))"
    master, terminal = os.openpty()
    done = subprocess.Popen(
        [sys.executable, "-c", said], cwd=ROOT, stdin=subprocess.PIPE, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(master, 4096)
    os.close(master)
    done.communicate(b"\n", timeout=60)
    assert done.returncode == 130
