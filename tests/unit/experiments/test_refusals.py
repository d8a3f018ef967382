from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from refusals import of_file, refusals
from script_runs import refuse

from commands.page.control import call_of
from commands.run import as_typed, experiment_of, file_values, parser_of
from commands.sweep.spec import read_spec
from commands.sweep.workers.dask_cluster import workers_of_options
from commands.sweep.workers.machine_check import MachineReport, check_machines
from experiments.collectives.all_to_all.experiment import read_demand
from experiments.collectives.collective.nccl_table import table_row
from experiments.faults import check_kills, parse_kills
from experiments.rails.experiment import Rails
from experiments.rails.job import check_floors, resolve_scale
from experiments.rails.settings import make_settings
from experiments.registry import find
from experiments.rest_access import read_token, reserved_address
from experiments.settings import PacketSettings, validated
from experiments.timetable import check, parse
from railyard.errors import ConfigError, MachineError
from railyard.scale import Floors
from topos.describe import plan
from topos.racks import RackTopo
from topos.rails import RailTopo
from workloads.catalog import load_workload

HERE = MachineReport("here", "0.5.0", "1eeb9c7", "3.11.2", "root", calibrated="2026-11-01", files={"/w.yaml": "ab"})
RAILS = plan(RailTopo(servers=2, gpus=2, fabric="ocs"))
LONG = {"LONG": "x" * 101, "VERY LONG": "x" * 1001}
PROPIUS = {"loads": [48], "policies": ["irs"], "rounds": 1, "virtual_clients": [6000], "virtual_rounds": 1}


def checked(name: str, **defaults: Any) -> Callable[..., None]:
    """A reader of the settings of an experiment, checked as before a run."""

    def check(**values: Any) -> None:
        kind = find(name)
        experiment = kind(validated(kind.Settings, {**defaults, **values}))
        experiment.check()
        experiment.check_run()

    return check


def floors(**values: Any) -> None:
    made, llama = make_settings(values), load_workload("llama3-8b-16")
    check_floors(made, llama, resolve_scale(made, llama, None), Floors())


def written(name: str, text: str) -> Path:
    """A file that only its owner may open."""
    Path(name).write_bytes(LONG.get(text, text).encode("latin-1"))
    Path(name).chmod(0o600)
    return Path(name)


def of_trace(text: str) -> None:
    lines = {"TOO OFTEN": (101, 0.0099), "TOO MANY": (10_001, 0.01), "TOO LONG": (30_000, 0.01)}
    if text in lines:
        count, apart_s = lines[text]
        text = "time_s,rate_mbps\n" + "".join(f"{number * apart_s:.4f},50\n" for number in range(count))
    parse(f"1s replay g0-r0 {written('trace.csv', text)}")


def sweep(text: str) -> None:
    whole = text.startswith(("experiment:", "base:", "["))
    base = "" if whole else "experiment: rails\nbase: {workload: smoke, modes: [on-demand]}\n"
    read_spec(written("sweep.yaml", base + text))


def machine(**changed: Any) -> None:
    other = replace(HERE, host="b", python="3.11.9")
    check_machines(HERE, [other, replace(other, **changed)], measured=True)


def workers(**options: Any) -> None:
    none = {"workers": None, "cluster": None, "scheduler": None, "calibrate": False}
    workers_of_options(SimpleNamespace(**(none | options)))


def reserve(**values: Any) -> None:
    with reserved_address(PacketSettings(**values)):
        pass


def misplaced(line: str) -> None:
    """A line that names a workload, a trace or a sweep in place of an experiment."""
    Path("mine.yaml").write_text("name: mine\nmodel: {layers: 4}\nparallelism: {dp: 2}\n")
    Path("ring.xml").write_text("<algo/>")
    Path("sweep.yaml").write_text("experiment: rails\ngrid: {seed: [1, 2]}\n")
    refuse(line)


def checked_command(line: str) -> None:
    """As ``railyard run`` checks an experiment before it asks for root."""
    name, *words = line.split()
    kind = find(name)
    options = parser_of(kind).read(words)
    try:
        experiment_of(kind, options).check()
    except ConfigError as error:
        raise as_typed(error, kind, options) or error from None


test_refusals = refusals(
    Path(__file__).with_name("refusals.yaml"),
    {
        "rails": checked("rails"),
        "torch": checked("torch"),
        "floors of rails": floors,
        "collective": checked("collective"),
        "straggler": checked("straggler"),
        "all-to-all": checked("all-to-all", guard_ms=2, studies=["slot", "skew"]),
        "failover": checked("failover"),
        "server-fabric": checked("server-fabric"),
        "propius": checked("propius", **PROPIUS),
        "allocation": checked("allocation"),
        "mesh": checked("mesh"),
        "opus": checked("opus"),
        "bench": checked("bench"),
        "kill": lambda text: parse_kills(text, plan(RackTopo())),
        "kill in a run": lambda text: check_kills(
            parse_kills(text, plan(RackTopo())), plan(RackTopo()), steps=10, known=[16, 1, 0], port=False
        ),
        "timetable": parse,
        "timetable file": of_file("flaps.yaml", lambda text: parse(str(written("flaps.yaml", text)))),
        "trace": of_trace,
        "timetable on rails": lambda text: check(parse(text), RAILS, steps=4),
        "demand": lambda text: read_demand(str(written("demand.csv", text)), 3, 1000, 1),
        "file of a demand": lambda name: read_demand(name, 3, 1000, 1),
        "NCCL table": table_row,
        "sweep": of_file("sweep.yaml", sweep),
        "workers": workers,
        "machine of a sweep": (machine, MachineError),
        "act": lambda **act: call_of({key: LONG.get(str(value), value) for key, value in act.items()}),
        "token": lambda text: read_token(written("my token", text)),
        "REST address": lambda address: validated(PacketSettings, {"rest": address}),
        "REST interface": reserve,
        "experiment": find,
        "file of rails": of_file("my.yaml", lambda text: file_values(Rails, written("my.yaml", text))),
        "file in place of an experiment": misplaced,
        "command line": refuse,
        "checked command line": checked_command,
    },
)
