from __future__ import annotations

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
    command = [*APART, shell, str(ROOT / "topos" / file), *arguments, "--controller", "none"]
    done = subprocess.run(
        command, input=script, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300, cwd="/"
    )
    if done.returncode != 0 and done.stdout.startswith(("unshare:", "mount:")):
        pytest.skip(f"this machine gives no namespaces: {done.stdout.strip()}")
    return done.stdout


def test_mn_starts_and_stops_it() -> None:
    said = mn(
        "--topo", "rails,servers=2,gpus=2,fabric=electrical", "--switch", "ovsbr,datapath=user", script="pingall\n"
    )
    assert "g0 -> X g2 X" in said and "g1 -> X X g3" in said
    assert "completed in" in said


def test_mn_reads_the_delay_of_links() -> None:
    topo = "rails,servers=2,gpus=1,fabric=electrical,delay_ms=5,jitter_ms=1,loss=0.1"
    plain = mn("--topo", topo, "--switch", "ovsbr,datapath=user", script="links\n")
    assert "g0-r0<->rail0-eth1 (OK OK)" in plain and "completed in" in plain
    shaped = mn("--topo", topo, "--link", "tc", "--switch", "ovsbr,datapath=user", script="links\n")
    assert "5ms delay" in shaped and "0.10000% loss" in shaped


def test_impossible_shape_is_one_clear_error() -> None:
    assert "ConfigError: servers: must be a whole number" in mn("--topo", "rails,servers=0")


def test_mn_starts_and_stops_racks() -> None:
    photonic = mn(
        "--topo",
        "morphlux,tenants=2x1@0:0",
        "--switch",
        "ovsbr,datapath=user",
        script="pingall\n",
        file="racks.py",
    )
    assert "g0 -> g1 g2 g3" in photonic and "completed in" in photonic
    torus = mn(
        "--topo",
        "rack,torus=4x2,server=2x1,fabric=electrical-torus,tenants=4x1@0:0",
        "--switch",
        "ovs,datapath=user",
        script="links\n",
        file="racks.py",
    )
    assert "n0-eth2<->n1-eth3 (OK OK)" in torus and "g7-r0<->n7-eth1 (OK OK)" in torus and "completed in" in torus


def test_place_with_a_comma_is_one_clear_error() -> None:
    said = mn("--topo", "rack,tenants=4x1@0,0", file="racks.py")
    assert "ConfigError: topo: write options as name=value" in said and "2x2@0:2" in said


def test_mn_starts_and_stops_an_edge_network() -> None:
    said = mn(
        "--topo", "edge,clients=2,regions=2", "--switch", "ovsbr,datapath=user", script="pingall\n", file="edge.py"
    )
    assert "c0 -> c1 X leaf0 leaf1 root" in said, "clients know control by another address than that of its first port"
    assert "completed in" in said
