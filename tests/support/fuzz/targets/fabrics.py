"""Fabrics as text: options of the topologies (``mn --topo``), ports and gates of a mesh; predictions of files."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import yaml
from fabric_plans import pip_plan

from controllers.mesh.switch import PipSwitch
from experiments.command.run import file_values
from experiments.experiment import Experiment
from experiments.registry import find
from experiments.settings import validated
from fuzz.mutation import NUMBERS, TEXTS, number
from fuzz.target import Target
from railyard.errors import CircuitError, ConfigError, VerifyError
from topos.describe import plan
from topos.racks import MorphluxTopo, RackTopo
from topos.rails import RailTopo

_RAILS = (
    *("servers=4", "gpus=2", "ports=2", "rate_mbps=100", "fabric=ocs", "fabric=electrical", "fabric=one-shot"),
    *("scale_up=true", "front_end=1", "scale_up_mbps=50", "mtu=9000", "lane_rates=25/25", "slow=3:0.5/7:0.25"),
    *("mesh=7x3", "mesh=7x3@0/5/11/16/17/18/19/20", "mesh=3x3@choose", "gate_latency_us=3", "delay_ms=1", "loss=0.1"),
)
_RACKS = (
    *("torus=4x4", "torus=4x4x4", "server=2x2", "fabric=photonic", "fabric=electrical-torus", "fabric=migrate"),
    *("spare_servers=2", "reserve=1x1@2,3/1x1@3,3", "tenants=2x2@0,0/1x1@2,0+1x1@3,0", "port_mbps=5", "jitter_ms=1"),
)


def _topology(make: Callable[..., object], data: bytes, folder: Path) -> None:
    """The options of a topology, a line each, as text from a command line."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    options = dict(line.split("=", 1) for line in lines if "=" in line)
    if all(name.isidentifier() and name not in ("self", "opts", "choose_ports") for name in options):
        plan(make(**options))


def _rails(**options: str) -> RailTopo:
    known = {key: value for key, value in options.items() if key in RailTopo.build.__annotations__}
    return RailTopo(**known)


def _racks(**options: str) -> RackTopo:
    known = {key: value for key, value in options.items() if key in RackTopo.build.__annotations__}
    return RackTopo(**known)


def _morphlux(**options: str) -> RackTopo:
    known = {key: value for key, value in options.items() if key in MorphluxTopo.build.__annotations__}
    return MorphluxTopo(**known)


def _gates(data: bytes, folder: Path) -> None:
    """States of the gates of a mesh, a bit each, then blocked ports."""
    bits, _, blocked = data.partition(b"\n")
    switch = PipSwitch(pip_plan(4).switches[0])
    switch.with_gates([bool(bit & 1) for bit in bits], list(blocked))


# ---- predictions ---------------------------------------------------------------------------------------------------

_MOST_POINTS, _MOST_RANKS, _MOST_STEPS = 4, 16, 4
_SMALL = {
    "collective": "ranks: 4\nsizes: [64K]\niterations: 1\n",
    "straggler": "ranks: [4]\nsizes: [64K]\niterations: 1\nalgorithms: [ring, stragglar]\ndelays_ms: [0, 3]\n",
    "all-to-all": "ranks: [4]\niterations: 1\nstudies: [grid]\n",
    "rails": "workload: smoke\nsteps: 1\nmodes: [electrical, on-demand]\ndelays_ms: [1]\n",
    "server-fabric": "studies: [epoch]\nshapes: [2x1x1]\n",
}


def _predict(data: bytes, folder: Path) -> None:
    """``railyard predict`` of a file of few points, ranks and steps: others take as long as they are large."""
    path = folder / "own.yaml"
    path.write_bytes(data)
    named = data.partition(b"experiment: ")[2].partition(b"\n")[0].decode("utf-8", "replace")
    kind: type[Experiment] = find(named) if named in _SMALL else find("collective")  # type: ignore[type-arg]
    settings = validated(kind.Settings, file_values(kind, path))
    experiment = kind(settings)
    experiment.check()
    ranks = getattr(settings, "ranks", None) or 0
    steps = max(getattr(settings, name, 0) for name in ("iterations", "steps"))
    most = max(ranks) if isinstance(ranks, tuple) and ranks else ranks if isinstance(ranks, int) else 0
    if (experiment.points() or 0) <= _MOST_POINTS and most <= _MOST_RANKS and steps <= _MOST_STEPS:
        for row in experiment.predict():
            row.to_json()


# ---- inputs by the grammars ----------------------------------------------------------------------------------------


def _own_options(known: tuple[str, ...], chance: Random) -> bytes:
    lines = []
    for option in chance.sample(known, chance.randrange(1, 5)):
        name, _, value = option.partition("=")
        if chance.random() < 0.5:
            value = str(chance.choice((number(chance), chance.choice(NUMBERS), chance.choice(TEXTS))))
        lines.append(f"{name}={value}")
    return "\n".join(lines).encode("utf-8", "replace")


def _own_prediction(chance: Random) -> bytes:
    name = chance.choice(list(_SMALL))
    tree = yaml.safe_load(_SMALL[name])
    if chance.random() < 0.6:
        tree[chance.choice(list(tree))] = number(chance)
    tree |= {"scale": {"time": number(chance)}} if chance.random() < 0.3 else {}
    return yaml.safe_dump({"experiment": name, **tree}).encode()


def targets() -> list[Target]:
    """The targets of this module."""
    files = [f"experiment: {name}\n{text}".encode() for name, text in _SMALL.items()]
    rails = ["\n".join(_RAILS[:5]), "\n".join((*_RAILS[:4], *_RAILS[7:13])), "servers=4\nports=2\nmesh=7x3"]
    racks = ["torus=4x4\ntenants=2x2@0,0/1x1@2,0+1x1@3,0", "fabric=electrical-torus\nreserve=1x1@2,3/1x1@3,3"]
    return [
        Target(
            f"topology-{name}",
            partial(_topology, make),
            [text.encode() for text in texts],
            words=[f"{option}\n".encode() for option in known],
            make=partial(_own_options, known),
        )
        for name, make, texts, known in (
            ("rails", _rails, rails, _RAILS),
            ("racks", _racks, racks, _RACKS),
            ("morphlux", _morphlux, ["fabric=photonic\ntenants=2x1@0,0"], (*_RACKS[3:], "tenants=2x1@0,0")),
        )
    ] + [
        Target(
            "mesh-gates", _gates, [bytes(35) + b"\n\1\2\3\4", b"\1" * 35 + b"\n\1\2\3\4"], (ConfigError, CircuitError)
        ),
        Target("predict", _predict, files, (ConfigError, VerifyError), make=_own_prediction, weight=0.05),
    ]
