from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from checkout import ROOT

pytestmark = [pytest.mark.root, pytest.mark.beside]
APART = ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]


def mn(*arguments: str, script: str = "", file: str = "rails.py") -> str:
    """What stock ``mn`` says on a topology file of ours, shut off from the machine (see stock_mn.sh)."""
    if shutil.which("mn") is None:
        pytest.skip("mn is not installed")
    shell = str(Path(__file__).with_name("stock_mn.sh"))
    command = [*APART, shell, str(ROOT / "topos" / file), *arguments]
    if "--controller" not in arguments:
        command += ["--controller", "none"]
    done = subprocess.run(
        command, input=script, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, cwd="/"
    )
    if done.returncode != 0 and done.stdout.startswith(("unshare:", "mount:")):
        pytest.skip(f"this machine gives no namespaces: {done.stdout.strip()}")
    return done.stdout


def documented(file: str, *pages: str, place: int = 0) -> list[str]:
    """The arguments after the file of the line for stock ``mn`` on ``file``, which all these pages and modules show."""
    shown: list[list[str]] = []
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8").replace("\\\n", " ").replace("\n  ", " ").replace("`", "\n")
        shown.append(re.findall(rf"sudo mn --custom topos/{file} (.*)", text)[place].split())
    assert shown.count(shown[0]) == len(pages), shown
    return shown[0]


LISTENING = "g1 until ss -Hltn | grep -q :5201; do sleep 0.05; done\n"
"""A server that was started as a daemon (``iperf3 -s -D``) may not listen yet when its first process has ended."""
TALK = f"pingall\ng1 iperf3 -s -D\n{LISTENING}g0 iperf3 -t 1 -c g1\ng0 iperf3 -u -b 20M -t 1 -c g1\n"


@pytest.mark.parametrize("tso", ["true", "false"])
def test_the_documented_line_carries_pings_tcp_and_udp(tso: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the system's Open vSwitch as scripts/setup.sh starts it, and as another made it."""
    monkeypatch.setenv("USERSPACE_TSO", tso)
    said = mn(*documented("rails.py", "README.md", "docs/rails.md", "topos/rails.py"), script=TALK)
    assert "*** Results: 0% dropped (12/12 received)" in said
    received = re.findall(r"([0-9.]+) ([MG])bits/sec .*receiver", said)
    mbps = [float(number) * {"M": 1, "G": 1e3}[unit] for number, unit in received]
    assert len(mbps) == 2 and min(mbps) > 10, said
    assert "completed in" in said


@pytest.mark.parametrize(
    ("file", "pages", "place", "script", "answers"),
    [
        ("rails.py", ["docs/rails.md"], 1, "links\n", "g0-r0<->rail0-eth1 (OK OK)"),
        ("edge.py", ["docs/propius.md", "topos/edge.py"], 0, "c0 ping -c1 -W2 root\n", " 0% packet loss"),
        ("racks.py", ["docs/racks.md", "topos/racks.py"], 0, "g0 ping -c1 -W2 10.250.0.2\n", " 0% packet loss"),
    ],
)
def test_every_other_documented_line_works(file: str, pages: list[str], place: int, script: str, answers: str) -> None:
    said = mn(*documented(file, *pages, place=place), script=script, file=file)
    assert answers in said and "completed in" in said


def test_optical_rails_are_dark_without_a_controller() -> None:
    said = mn("--topo", "rails,servers=2,gpus=1", "--switch", "fabric", script="g0 ping -c1 -W1 g1\n")
    assert " 100% packet loss" in said and "completed in" in said


def test_mn_reads_the_delay_of_links() -> None:
    topo = "rails,servers=2,gpus=1,fabric=electrical,delay_ms=5,jitter_ms=1,loss=0.1"
    plain = mn("--topo", topo, "--switch", "ovsbr,datapath=user", script="links\n")
    assert "g0-r0<->rail0-eth1 (OK OK)" in plain and "completed in" in plain
    shaped = mn("--topo", topo, "--link", "tc", "--switch", "ovsbr,datapath=user", script="links\n")
    assert "5ms delay" in shaped and "0.10000% loss" in shaped


def test_impossible_shape_is_one_clear_error() -> None:
    assert "ConfigError: servers: must be a whole number" in mn("--topo", "rails,servers=0")
