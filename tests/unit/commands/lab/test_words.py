"""What a person types to a lab: the words of ``railyard up``, the lab that is meant, and its status in lines."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from recorded_net import recorded

from commands.lab import client
from commands.lab.client import NAME, SOCKET, lab_option, labs, open_lab
from commands.lab.lab import Lab, LabSpec, circuits_text, status_text
from commands.lab.up import USAGE, read_words
from commands.main import main
from railyard.errors import NOT_FAITHFUL_EXIT_STATUS, ConfigError
from topos.describe import plan
from topos.kernel.live_links import LinkNames
from topos.rails import RailTopo
from topos.reach import ring


def test_words_of_up_are_those_of_the_lab_and_of_its_topology(tmp_path: Path) -> None:
    words = ["rails", "--servers", "4", "--fabric=ocs", "--name", "two", "--rate-mbps", "50"]
    spec = read_words(words)
    assert spec == {
        "topology": "rails",
        "options": {"servers": "4", "fabric": "ocs", "rate_mbps": "50"},
        "name": "two",
    }
    assert [len(LabSpec(**spec).topo().hosts())] == [16]
    file = tmp_path / "lab.yaml"
    file.write_text("topology: rails\nservers: 2\ncontroller: none\n")
    read = read_words([str(file), "--servers", "3"])
    assert read == {"topology": "rails", "options": {"servers": "3"}, "controller": "none"}


def test_a_topology_of_ones_own_gets_numbers_and_truth_where_the_text_is_one(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from mininet.topo import Topo\nclass Mine(Topo):\n    def build(self, **options):\n"
        "        self.addHost('h1')\n        self.options = options\n"
    )
    options = {"n": "3", "bw": "0.5", "loud": "False", "label": "3x"}
    topo = LabSpec(f"{file}:Mine", options).topo()
    assert topo.options == {"n": 3, "bw": 0.5, "loud": False, "label": "3x"}


@pytest.mark.parametrize("topology", ["rails", "racks", "edge", "morphlux", "mininet.topo:SingleSwitchTopo"])
def test_help_shows_the_options_of_a_topology_on_80_columns(topology: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", topology, "--help"]) == 0
    usage, _, options = capsys.readouterr().out.partition(f"\noptions of {topology}, with their defaults:\n")
    assert usage == f"{USAGE}\n" and max(map(len, options.splitlines())) <= 80
    given = [words.replace("-", "_").split() for words in options.replace("\n", "").split("--")[1:]]
    LabSpec(topology, {key: value for key, value in given if value != "..."}).topo()


def test_an_unknown_controller_is_told_all_that_there_are() -> None:
    with pytest.raises(ConfigError, match="--controller: must be one of os-ken, ryu, remote, none, not foo"):
        LabSpec("rails", controller="foo").check()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["rails", "--servers"], "--servers: needs a value"),
        (["rails", "servers", "4"], "servers is no option; options are --KEY VALUE"),
        (["nosuch.yaml"], "nosuch.yaml: cannot be read"),
    ],
)
def test_wrong_words_of_up(words: list[str], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_words(words)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (LabSpec("rails", {"gpuz": "3"}), '--gpuz: is no option of rails; did you mean "--gpus"?'),
        (LabSpec("rails", {"delay": "3"}), 'did you mean "--delay-ms"?'),
        (LabSpec("rails", {"servers": "none"}), "servers: must be a whole number"),
        (LabSpec("railz"), "'railz' is not a topology; did you mean"),
        (LabSpec("mininet.topo:MinimalTopo", {"nosuch": "1"}), "nosuch"),
    ],
)
def test_a_topology_that_cannot_be_made(spec: LabSpec, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        spec.topo()
    assert says in str(refused.value)


def test_a_topology_of_ones_own_needs_a_host(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from mininet.topo import Topo\nclass Empty(Topo):\n    def build(self): self.addSwitch('s1')\n")
    with pytest.raises(ConfigError, match="has no host"):
        LabSpec(f"{file}:Empty").topo()


@pytest.mark.parametrize(
    ("verb", "target", "says"),
    [
        ("fail", "g0", "rail0: 5-6; down: 1-4 2-3"),
        ("fail", "g0-r1", "rail0: 1-4 5-6; down: 2-3"),
        ("restore", "g0", "rail0: 1-4 2-3 5-6"),
    ],
)
def test_circuits_are_told_once_the_controller_has_seen_what_failed(
    monkeypatch: pytest.MonkeyPatch, verb: str, target: str, says: str
) -> None:
    lab = Lab(LabSpec("rails", {"servers": "3", "gpus": "1"}))
    net = recorded(monkeypatch, lab.spec.topo())
    place = LinkNames(net.nameToNode, net.switches).place
    lab.net = SimpleNamespace(  # type: ignore[assignment]
        topo=net.topo, plan=plan(net.topo), live=SimpleNamespace(place=place, down=set)
    )
    failed = {str(end.node.ports[end]) for end in place(target).ends if end.node.name == "rail0"}
    seen = [failed if verb == "restore" else set(), {*list(failed)[:1]}, set() if verb == "restore" else failed]
    told = [0]  # how often the controller was asked

    def call(op: str) -> dict[str, object]:
        out = seen[min(told[0] // 3, 2)]
        told[0] += 1
        pairs = [[a, b] for a, b in ([1, 4], [2, 3], [5, 6]) if not out & {str(a), str(b)}]
        ports = {str(port): "failed" if str(port) in out else "tuned" for port in range(1, 7)}
        return {"switches": [{"name": "rail0", "kind": "ocs", "circuits": pairs, "ports": ports}]}

    lab.session = SimpleNamespace(controller=True, call=call)  # type: ignore[assignment]
    lab.reach = SimpleNamespace(follow=lambda circuits, force: None)  # type: ignore[assignment]
    monkeypatch.setattr(lab, "_do", lambda act: None)
    assert lab.operations[verb]([target]) == says


def test_the_lab_is_named_before_the_program_alone() -> None:
    assert lab_option(["g0", "--lab", "two", "--", "ls", "--lab", "x"]) == ("two", ["g0", "--", "ls", "--lab", "x"])
    assert lab_option(["g0", "--", "--lab"]) == (None, ["g0", "--", "--lab"])
    with pytest.raises(ConfigError, match="needs the name of a lab"):
        lab_option(["g0", "--lab"])


def test_a_lab_is_found_by_its_name_or_where_it_is_the_only_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with pytest.raises(ConfigError, match="no lab is up"):
        open_lab(None, tmp_path)
    listeners = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / NAME).write_text(name)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / name / SOCKET))
        listeners.append(listener)
        if name == "one":
            listener.listen()
            open_lab(None, tmp_path).close()
    assert list(labs(tmp_path)) == ["one"], "a socket that nobody listens on is that of a lab that was killed"
    listeners[1].listen()
    with pytest.raises(ConfigError, match="several labs are up \\(one, two\\); name one with --lab"):
        open_lab(None, tmp_path)
    with pytest.raises(ConfigError, match='there is no lab tw; did you mean "two"'):
        open_lab("tw", tmp_path)
    open_lab("two", tmp_path).close()
    for listener in listeners:
        listener.close()


def test_status_fits_80_columns() -> None:
    fabric = plan(RailTopo(servers=16, gpus=8))
    facts = {
        "name": "lab",
        "topology": "rails",
        "controller": "os-ken",
        "datapath": "bpf",
        "up_s": 1.25,
        "hosts": {},
        "circuits": ring(fabric),
        "failed": ["g1"],
        "timetables": ["2s fail rail0:3, 0.1 ms late"],
        "trouble": "the controller ended during the run",
    }
    lines = status_text(facts, fabric).splitlines()
    assert lines[:2] == [
        "lab: rails, controller os-ken, datapath bpf, up 1.25 s",
        "TROUBLE: the controller ended during the run",
    ]
    assert lines[2] == "failed: g1"
    assert max(map(len, lines)) <= 80 and lines[-1] == "2s fail rail0:3, 0.1 ms late"
    own = status_text({**facts, "hosts": {"h1": [{"ip": "10.0.0.1"}, {"ip": None}]}}, None)
    assert "h1: 10.0.0.1" in own
    assert circuits_text([]) == "no circuit"


@pytest.mark.parametrize(("says", "status"), [("faithful", 0), ("NOT FAITHFUL", NOT_FAITHFUL_EXIT_STATUS)])
def test_a_stretch_that_is_not_faithful_has_the_exit_status_of_such_a_run(
    monkeypatch: pytest.MonkeyPatch, says: str, status: int
) -> None:
    answer = f"stretch, 2.4 s of wall-clock time: {says}\nrails: 0 bytes"
    monkeypatch.setattr(client, "open_lab", lambda name: SimpleNamespace(call=lambda *words, **more: answer))
    assert main(["verdict"]) == status


def test_a_fabric_begins_with_rings_that_join_every_host_with_its_neighbours() -> None:
    two_lanes = ring(plan(RailTopo(servers=3, gpus=2)))
    assert two_lanes == {"rail0": [[2, 3], [4, 5], [6, 1]], "rail1": [[2, 3], [4, 5], [6, 1]]}
    assert ring(plan(RailTopo(servers=4, gpus=1, ports=1))) == {"rail0": [[1, 2], [3, 4]]}
    assert ring(plan(RailTopo(servers=4, gpus=1, fabric="electrical"))) == {}
