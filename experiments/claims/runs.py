"""The runs that measure the claims, in the order in which they are measured: those that need no root first."""

from __future__ import annotations

from experiments.claims.claim import MeasuredRun

_CIRCUITS = ("controllers/circuits", "topos")

RUNS: tuple[MeasuredRun, ...] = (
    MeasuredRun("fabric-cost", "fabric-cost", 0.1, root=False, figures={"fabric-cost": "fabric-cost.png"}, layers=()),
    MeasuredRun(
        "mesh",
        "mesh --width 3 --height 3 --ports 8 --exact",
        0.1,
        root=False,
        keep=("used_ports", "pairs"),
        layers=_CIRCUITS,
    ),
    MeasuredRun("mesh-32", "mesh --width 9 --height 9 --ports 32", 0.5, root=False, layers=_CIRCUITS),
    MeasuredRun(
        "rails-testbed",
        "rails --delays 0,10,50,100,250,500,1000 --modes electrical,on-demand,provisioned --port-gbps 100",
        0.3,
        verb="predict",
        root=False,
        figures={"overhead": "rails-overhead.png"},
    ),
    MeasuredRun(
        "rails-long",
        "rails --delays 1000,3000 --modes on-demand --port-gbps 100",
        0.1,
        verb="predict",
        root=False,
    ),
    MeasuredRun(
        "allocation",
        "allocation",
        0.3,
        root=False,
        figures={"allocation_protocols": "allocation-protocols.png"},
        layers=("controllers/allocation", *_CIRCUITS),
    ),
    MeasuredRun("links", "bench --only links,dark", 1),
    MeasuredRun("rails", "rails", 8, figures={"step-time": "step-time.png"}),
    MeasuredRun("collective", "collective --algorithms ring,recursive-halving-doubling --sizes 1M,4M", 1),
    MeasuredRun(
        "straggler",
        "straggler --algorithms ring,stragglar --iterations 1",
        3,
        figures={"straggler_delay": "straggler-delay.png"},
    ),
    MeasuredRun(
        "straggler-ranks", "straggler --study ranks --ranks 4,8,16 --algorithms ring,stragglar --iterations 1", 2
    ),
    MeasuredRun(
        "all-to-all",
        "all-to-all --study delay,slot --slots 0,50,100,200 --iterations 1",
        3,
        figures={"all_to_all_delay": "all-to-all-delay.png"},
    ),
    MeasuredRun(
        "failover",
        "failover --time 0.5",
        6,
        keep=("breakdown", "predicted_breakdown"),
        figures={"throughput": "failover-throughput.png", "recovery": "failover-recovery.png"},
    ),
    MeasuredRun(
        "server-fabric",
        "server-fabric --shapes 2x1x1 --study iperf3,epoch,recovery",
        3,
        keep=("breakdown", "predicted_breakdown"),
        figures={"server-fabric": "server-fabric.png"},
    ),
    MeasuredRun("propius-trunk", "propius --study trunk", 2, figures={"propius-trunk": "propius-trunk.png"}),
)
