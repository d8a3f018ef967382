"""The Python API with packets: a run, a run that is interrupted, a lab, and a user who is not root."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from checkout import ROOT
from markdown_it import MarkdownIt
from script_runs import PATIENCE_S, hear_signals

import railyard as ry
from commands.lab.client import labs
from railyard.errors import ConfigError
from railyard.process.start import has_ended

pytestmark = [pytest.mark.root, pytest.mark.beside]
POINT: Any = {"workload": "smoke", "modes": ["on-demand"], "delays_ms": [50]}
WITH_PACKAGE = {**os.environ, "PYTHONPATH": str(ROOT)}


def test_ctrl_c_ends_the_run_of_a_notebook_in_order(tmp_path: Path) -> None:
    out = tmp_path / "run"
    code = f"import railyard as ry; ry.run('rails', out={str(out)!r}, steps=500, **{POINT!r})"
    python = subprocess.Popen([sys.executable, "-c", code], env=WITH_PACKAGE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True, preexec_fn=hear_signals)  # fmt: skip
    end = time.monotonic() + PATIENCE_S
    while not list((out / "points").glob("*/g0.jsonl")):
        assert python.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    python.send_signal(signal.SIGINT)  # to this process alone, as a notebook does
    _, said = python.communicate(timeout=PATIENCE_S)
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert json.loads((out / "manifest.json").read_text())["ended"].startswith("stopped: ")


@pytest.mark.parametrize("call", ["ry.run('rails', workload='smoke')", "ry.up('rails', servers=2)"])
def test_a_user_without_sudo_is_told_what_to_type(call: str) -> None:
    code = f"import railyard as ry\ntry: {call}\nexcept Exception as error: print(type(error).__name__, error)"
    other = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]  # who may read the checkout in root's home
    other += ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
    done = subprocess.run(
        [*other, sys.executable, "-c", code], env=WITH_PACKAGE, cwd="/", capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("MachineError this needs root, ") and f"type: sudo {sys.executable} " in done.stdout


@pytest.fixture(scope="module")
def lab() -> Iterator[ry.Lab]:
    with ry.up("rails", servers=4, gpus=1) as lab:
        yield lab
    assert lab.name not in labs()
    lab.down()


def test_programs_run_on_hosts(lab: ry.Lab) -> None:
    assert lab.hosts == ("g0", "g1", "g2", "g3") and "rail0: " in repr(lab)
    assert lab.host(1).run(["hostname"]).stdout == "g1\n"
    assert "1 received" in lab.host("g0").run(["ping", "-c1", "g1"], check=True).stdout
    assert lab.host(0).run(["cat"], input="words").stdout == "words"
    assert lab.host(0).run(["sh", "-c", "echo no >&2; exit 7"]).returncode == 7
    with pytest.raises(subprocess.CalledProcessError):
        lab.host(0).run(["false"], check=True)
    assert lab.host(0).run(["sh", "-c", "echo railyard: mine >&2; exit 2"]).returncode == 2
    assert lab.host(0).run(["sh", "-c", "exit 124"], timeout=60).returncode == 124
    assert "PYTHONPATH" not in lab.host(0).run(["env"]).stdout
    for host in (4, -1, "g9"):
        with pytest.raises(ConfigError, match=f"there is no host {host}"):
            lab.host(host)
    with pytest.raises(ConfigError, match="must be a list of words"):
        lab.host(0).run("ping -c1 g1")


def test_a_program_that_takes_too_long_is_ended_on_its_host(lab: ry.Lab, tmp_path: Path) -> None:
    written = tmp_path / "pids"
    stubborn = "trap '' TERM; echo $$ > {0}; sleep 60 & echo $! >> {0}; wait; sleep 60"
    begun = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        lab.host(0).run(["sh", "-c", stubborn.format(written)], timeout=1)
    assert time.monotonic() < begun + PATIENCE_S
    pids = written.read_text().split()
    assert len(pids) == 2 and all(has_ended(int(pid), PATIENCE_S) for pid in pids)


def test_verbs_change_the_fabric(lab: ry.Lab) -> None:
    assert lab.connect("rail0", 1, 5) == "rail0: 1-5 2-3 6-7"
    assert "3 received" in lab.ping("g0", "g2") and "g2" in lab.pingall()
    lab.fail("rail0:1")
    assert [1, 5] not in [sorted(pair) for pair in lab.status()["circuits"]["rail0"]]
    lab.restore("rail0:1")
    lab.set("g0-r0", rate="50Mbps")
    assert lab.disconnect("rail0", 5).startswith("rail0: ")
    with pytest.raises(ConfigError, match='did you mean "rail0"'):
        lab.connect("rail", 1, 5)


def test_a_stretch_with_a_timetable_is_judged(lab: ry.Lab) -> None:
    lab.mark("mine")
    assert lab.at("0.1s fail g3; 0.2s restore g3") == "2 acts, the last in 0.2 s"
    assert lab.verdict("mine").startswith("mine, ")


def test_a_lab_goes_down_after_an_error_and_with_python() -> None:
    with pytest.raises(ZeroDivisionError), ry.up("rails", servers=2, gpus=1) as lab:
        _ = 1 / 0
    assert lab.name not in labs()
    with pytest.raises(ConfigError, match="no lab"):
        lab.host(0).run(["true"])
    code = "import railyard as ry; lab = ry.up('rails', servers=2, gpus=1); print(lab.name, lab.status()['name'])"
    done = subprocess.run([sys.executable, "-c", code], env=WITH_PACKAGE, capture_output=True, text=True, check=True)
    name, same = done.stdout.split()
    assert name == same and name not in labs()


def test_every_block_of_the_page_runs_and_its_run_has_rows_a_verdict_and_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = io.StringIO()
    for block in MarkdownIt().parse((ROOT / "docs" / "api.md").read_text()):
        if block.type == "fence" and block.info == "python":
            printed = io.StringIO()
            with redirect_stdout(printed):
                exec(compile(block.content, "docs/api.md", "exec"), names)
        elif block.type == "fence":
            assert printed.getvalue() == block.content
    found, out = names["run"], tmp_path / "my-run"
    (row,) = found
    assert row.step_time_s == pytest.approx(row.predicted_step_time_s, rel=0.5) and row.mode == "on-demand"
    assert found.faithful is row.faithful and found.faithful is not None and found.folder == out and names["late"]
    assert found.verdict.startswith("faithful" if found.faithful else "NOT FAITHFUL: ")
    assert "[1/1] on-demand, 50 ms" in capsys.readouterr().err
    assert {"step", "reconfigure"} <= {event.kind for event in found.events()}
    assert found.figure("step-time").path == out / "figures" / "step-time.png"
    assert "measured less predicted" in found.explain() and "dp all-reduce" in found.explain(point=0)
    assert list(ry.load(out)) == [row]
    keys = json.dumps({**POINT, "repeats": 1, "attempts": 1})
    assert f"--keys '{keys}'" in json.loads((out / "manifest.json").read_text())["command"]
