"""A fabric that stays: brought up, used from other processes, troubled, and taken down; and what a kill leaves."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
from checkout import ROOT
from neighbour_app import neighbour_app
from script_runs import PATIENCE_S

from commands.lab.client import labs
from topos.describe import plan
from topos.kernel.run_registry import clear_dead_runs
from topos.rails import RailTopo

pytestmark = [pytest.mark.root, pytest.mark.beside]
NAME = f"test-{os.getpid()}"
PORT = 6671
"""Where an app listens for a lab."""
Run = Callable[..., subprocess.CompletedProcess[str]]


def railyard(*words: object, status: int | None = 0, **options: object) -> subprocess.CompletedProcess[str]:
    """The command with its exit status checked (None: any)."""
    command = [sys.executable, "-m", "commands.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S, check=False, **options)  # type: ignore[call-overload]
    assert status in (None, done.returncode), done
    return done  # type: ignore[no-any-return]


def on_lab(verb: str, *words: object, status: int | None = 0) -> str:
    """What a verb prints on the lab of this module, or its error."""
    done = railyard(verb, "--lab", NAME, *words, status=status)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def lab() -> Iterator[str]:
    up = railyard("up", "rails", "--servers", 4, "--gpus", 1, "--name", NAME, "--rest", "127.0.0.1:0")
    try:
        yield up.stdout
    finally:
        railyard("down", "--lab", NAME)
    assert NAME not in labs()
    railyard("up", "rails", "--servers", 2, "--gpus", 1, "--name", NAME)  # its name is free as soon as it is down
    railyard("down", "--lab", NAME)


def test_up_says_what_is_there_and_what_to_type(lab: str) -> None:
    assert "rail0: 10.1.0.1 g0 to 10.1.0.8 g3, 8 ports; circuits 1-8 2-3 4-5 6-7" in lab
    assert f"try: railyard pingall | exec HOST -- PROGRAM | cli | down (with --lab {NAME}, if there are others)" in lab
    facts = json.loads(on_lab("status", "--json"))
    assert list(facts["hosts"]) == ["g0", "g1", "g2", "g3"] and facts["trouble"] is None


def test_a_program_on_a_host_has_its_network_its_names_and_its_own_status(lab: str) -> None:
    assert on_lab("exec", "g1", "--", "hostname") == "g1\n"
    assert "inet 10.1.0.3/16" in on_lab("exec", "g1", "--", "ip", "address", "show", "g1-r0")
    assert on_lab("exec", "g0", "--", "getent", "hosts", "g1").split()[0] == "10.1.0.3"
    on_lab("exec", "g0", "--", "sh", "-c", "exit 7", status=7)
    assert on_lab("exec", "g0", "--", "sh", "-c", "yes | head -1") == "y\n"
    assert on_lab("exec", "g0", "--", "no-such-program", status=127) == "railyard: no-such-program: command not found\n"
    assert "there is no host g9" in on_lab("exec", "g9", "--", "true", status=2)


def test_circuits_follow_and_names_follow_them(lab: str) -> None:
    assert "0 of 8 pings were lost" in on_lab("pingall")
    assert "no circuit joins g0 and g2" in on_lab("ping", "g0", "g2", status=2)
    assert on_lab("connect", "rail0", 1, 5) == "rail0: 1-5 2-3 6-7\n"
    assert "3 received" in on_lab("ping", "g0", "g2")
    assert on_lab("disconnect", "rail0", 5) == "rail0: 2-3 6-7\n"
    assert "no circuit joins g0 and g2" in on_lab("ping", "g0", "g2", status=2)
    on_lab("connect", "rail0", "1-8", "4-5")


def test_what_fails_is_dark_until_it_is_restored(lab: str) -> None:
    one = "1-8 4-5 6-7; down: 2-3"
    for name, said in {"rail0:3": one, "g1": "1-8 6-7; down: 2-3 4-5", "g1-r0": one}.items():
        assert on_lab("fail", name) == f"rail0: {said}\n"
        assert name in on_lab("status").split("failed: ")[1].splitlines()[0].split(), (
            "beside the ports that went with it"
        )
        assert "0 received" in on_lab("exec", "g0", "--", "ping", "-c1", "-W1", "10.1.0.3", status=1), name
        assert on_lab("restore", name) == "rail0: 1-8 2-3 4-5 6-7\n"
        end = time.monotonic() + 5
        while "1 received" not in on_lab("exec", "g0", "--", "ping", "-c1", "-W1", "g1", status=None):
            assert time.monotonic() < end, f"{name} stays dark"
    assert "has not failed" in on_lab("restore", "g1", status=None)
    assert on_lab("fail", "rail0") == "rail0: no circuit; down: 1-8 2-3 4-5 6-7\n"
    assert on_lab("restore", "rail0") == "rail0: 1-8 2-3 4-5 6-7\n"


def test_a_timetable_is_kept(lab: str) -> None:
    assert on_lab("at", "0.1s fail rail0:2; 0.2s set g0-r0 rate=50Mbps") == "2 acts, the last in 0.2 s\n"
    wait_for_status(lambda status: "set g0-r0 rate=50Mbps, " in status and " 2-3 " not in status)
    assert on_lab("at", "0.1s set g0-r0 rate=100Mbps; 0.2s restore rail0:2") == "2 acts, the last in 0.2 s\n"
    status = wait_for_status(lambda status: "restore rail0:2, " in status and " 2-3 " in status)
    assert "fail rail0:2, " in status and "refused" not in status
    assert "comes before the act in front of it" in on_lab("at", "2s fail g1; 1s restore g1", status=2)


def wait_for_status(holds: Callable[[str], bool]) -> str:
    """The first status that ``holds``."""
    end = time.monotonic() + 10
    while not holds(status := on_lab("status")):
        assert time.monotonic() < end, status
    return status


def test_a_stretch_is_judged(lab: str) -> None:
    assert "no stretch is under way" in on_lab("verdict", status=2)
    on_lab("mark", "mine")
    assert "the stretch 'mine' is under way" in on_lab("mark", status=2)
    on_lab("exec", "g0", "--", "ping", "-q", "-c50", "-i0.002", "-s1000", "g1")
    said = on_lab("verdict", status=None)
    assert max(map(len, said.splitlines())) <= 80
    assert said.startswith("mine, ") and "packets lost" in said and "0 packets came to a wrong host" in said
    sent = int(said.split("rails: ")[1].split()[0])
    assert 100 * 1000 < sent < 100 * 1100 + 2000, "50 echoes and their answers"
    assert "the user's programs chose how fast to send" in said


def test_a_rate_changes_while_the_lab_is_up(lab: str) -> None:
    on_lab("set", "g0-r1", "rate=20Mbps")
    shown = on_lab("exec", "g0", "--", "tc", "qdisc", "show", "dev", "g0-r1")
    assert "rate 20Mbit" in shown
    on_lab("set", "g0-r1", "rate=100Mbps")
    assert "no congestion control nosuch" in on_lab("set", "g0", "transport=nosuch", status=2)


def test_the_prompt_of_mininet_is_on_the_same_fabric(lab: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "commands.main", "cli", "--lab", NAME],
        input="circuits\nrewire rail0 1-5\npy 6 * 7\nexit\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
        check=True,
    )
    assert "42" in done.stdout + done.stderr
    assert "rail0: 1-5 2-3 6-7" in on_lab("status").replace("circuits ", "rail0: ")
    on_lab("connect", "rail0", "1-8", "4-5")


def test_rest_does_what_the_verbs_do_for_who_has_the_token(lab: str) -> None:
    line = re.search(r"REST on (\S+)\s+with the token in (\S+)", lab)
    assert line is not None
    address, token = line[1], Path(line[2]).read_text().strip()

    def call(path: str, body: object = None, given: str = token) -> dict[str, object]:
        request = urllib.request.Request(address.removesuffix("/lab") + path)
        request.add_header("Authorization", f"Bearer {given}")
        if body is not None:
            request.add_header("Content-Type", "application/json")
            request.data = json.dumps(body).encode()
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return json.loads(answer.read())  # type: ignore[no-any-return]
        except urllib.error.HTTPError as error:
            return {"status": error.code, **json.loads(error.read())}

    assert call("/lab")["name"] == NAME
    assert call("/lab/disconnect", {"words": ["rail0", "2"]}) == {"text": "rail0: 1-8 4-5 6-7"}
    assert call("/lab/connect", {"words": ["rail0", "2-3"]}) == {"text": "rail0: 1-8 2-3 4-5 6-7"}
    assert call("/lab/connect", {"words": ["rail9", "2-3"]})["status"] == 400
    assert call("/lab/connect", {"words": "rail0"})["status"] == 400
    assert call("/lab", given="wrong")["status"] == 401
    assert "/lab/fail" in call("/")["POST"]  # type: ignore[operator]


def test_a_name_that_is_taken(lab: str) -> None:
    said = railyard("up", "rails", "--name", NAME, status=2).stderr
    assert said == f"railyard: the lab '{NAME}' is up already; choose another name, or railyard down --lab {NAME}\n"
    said = railyard("up", "rails", "--server", 4, "--name", NAME, status=2).stderr
    assert said == 'railyard: --server: is no option of rails; did you mean "--servers"?\n'


def test_a_job_runs_on_a_lab_with_its_prediction_and_its_verdict(tmp_path: Path) -> None:
    name = f"{NAME}-job"
    options = ["--servers", 4, "--gpus", 2, "--rate-mbps", 100, "--mtu", 4200]
    railyard("up", "rails", "--name", name, *options)
    try:
        job = ("rails", "--lab", name, "--workload", "smoke", "--modes", "on-demand", "--delays", "20", "--steps", "2")
        once = ("--repeats", "1", "--attempts", "1", "--no-figures")
        wrong = railyard("run", *job, *once, "--rate", "1/50", "--out", tmp_path / "wrong", status=2).stderr
        assert "up rails --servers 4 --gpus 2 --ports 2 --rate-mbps 250" in wrong
        modes = ("--modes", "electrical,on-demand,provisioned", "--out", tmp_path / "modes")
        wrong = railyard("run", *job, *once, "--rate", "1/125", *modes, status=2).stderr
        assert "the lab is ocs; of the modes asked for it serves on-demand and provisioned: add --modes" in wrong
        for option, value in (("--transport", "reno"), ("--events", "1s fail rail0:3")):
            other = (*job, *once, "--rate", "1/125", option, value, "--out", tmp_path / option)
            assert f"{option.removeprefix('--')}: " in railyard("run", *other, status=2).stderr
        out = tmp_path / "results"
        railyard("run", *job, *once, "--rate", "1/125", "--out", out, status=None)
        (row,) = json.loads((out / "summary.json").read_text())
        assert row["steps"] == 2 and row["reconfigurations_per_step"] == 2 and row["misdelivered"] == 0
        assert row["step_time_s"] == pytest.approx(row["predicted_step_time_s"], rel=0.1)
        assert json.loads(railyard("status", "--lab", name, "--json").stdout)["trouble"] is None
    finally:
        railyard("down", "--lab", name)


@pytest.mark.parametrize("forwarding", ["none", "remote"])
def test_a_topology_of_ones_own(tmp_path: Path, forwarding: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from mininet.topo import Topo\n"
        "class Mine(Topo):\n"
        "    def build(self, hosts=2):\n"
        "        s = self.addSwitch('s1')\n"
        "        for i in range(int(hosts)): self.addLink(self.addHost(f'h{i}'), s)\n"
    )
    name = f"{NAME}-{forwarding}"
    words = ("up", f"{file}:Mine", "--hosts", 3, "--name", name, "--controller", forwarding)
    if forwarding == "remote":
        said = railyard(*words, "--remote", "127.0.0.1:1", status=5).stderr
        assert "no OpenFlow controller answers at 127.0.0.1:1" in said and name not in labs()
        return
    railyard(*words)
    try:
        assert "3 received" in railyard("ping", "--lab", name, "h0", "h2").stdout
        assert "no optical switch" in railyard("connect", "--lab", name, "s1", 1, 2, status=2).stderr
        assert "no plan" in railyard("mark", "--lab", name, status=2).stderr
    finally:
        railyard("down", "--lab", name)


def test_circuits_of_an_app_are_pinged_and_its_end_is_told(tmp_path: Path) -> None:
    name, file = f"{NAME}-app", tmp_path / "plan.json"
    file.write_text(json.dumps(asdict(plan(RailTopo(servers=2, gpus=1)))))
    with neighbour_app(file, PORT) as app:
        words = ("--servers", 2, "--gpus", 1, "--controller", "remote", "--remote", f"127.0.0.1:{PORT}")
        railyard("up", "rails", *words, "--name", name)
        try:
            assert "/2 received)" in railyard("pingall", "--lab", name).stderr  # of Mininet's logger
            assert json.loads(railyard("status", "--lab", name, "--json").stdout)["trouble"] is None
            app.kill()
            app.wait()
            trouble = json.loads(railyard("status", "--lab", name, "--json").stdout)["trouble"]
            assert trouble == f"no controller is connected; start yours at 127.0.0.1:{PORT} again"
        finally:
            railyard("down", "--lab", name)


def test_a_daemon_that_is_killed_leaves_nothing(tmp_path: Path) -> None:
    name = f"{NAME}-killed"
    own = {**os.environ, "TMPDIR": str(tmp_path)}
    railyard("up", "rails", "--servers", 2, "--gpus", 1, "--name", name, env=own)
    folder = labs()[name].parent
    sleeper = subprocess.Popen(
        [sys.executable, "-m", "commands.main", "exec", "--lab", name, "g0", "--", "sleep", "1000"], cwd=ROOT
    )
    time.sleep(0.5)
    owner = json.loads((folder / "owner.json").read_text())["pid"]
    os.kill(owner, signal.SIGKILL)
    assert sleeper.wait(PATIENCE_S) != 0, "what runs on a host ends with the lab"
    end = time.monotonic() + 10
    while folder.exists():
        assert time.monotonic() < end
        time.sleep(0.05)
    clear_dead_runs()
    assert name not in labs() and not list(tmp_path.iterdir())
    railyard("up", "rails", "--servers", 2, "--gpus", 1, "--name", name)
    railyard("down", "--lab", name)
