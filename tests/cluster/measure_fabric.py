"""Measures one fabric over machines that namespaces play on this one, beside the same fabric on one machine.

    sudo scripts/_venv.py tests/cluster/measure_fabric.py [job] [barrier] [ends] [large]

Not a test: it takes some minutes, and needs a machine that does nothing else. ``job``: steps of the smoke job over 1, 2
and 3 machines. ``barrier``: the readiness barrier of 64 members, with the network between machines as fast as it is and
with a round trip of 1 ms. ``ends``: how long it takes until nothing is left after kill -9 of the head. ``large``: how
long 256 GPUs over 4 machines take to come up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT), str(ROOT / "tests/support")]

from cluster.machines import SSH_CONFIG, Machines  # noqa: E402
from cluster.runs import agents, remains, wait_until  # noqa: E402
from cluster.underlay import Underlay  # noqa: E402

from railyard.remote.ssh import CONFIG_VARIABLE  # noqa: E402

RUN = [sys.executable, "-m", "commands.main", "run", "rails", "--workload", "smoke", "--rate", "1/250"]
JOB = [*RUN, "--time", "1", "--modes", "on-demand", "--delays", "0,100,200", "--repeats", "3"]
LONG = [*RUN, "--modes", "on-demand", "--delays", "20", "--steps", "400", "--repeats", "1", "--attempts", "1"]
BARRIER = """
import sys
from pathlib import Path
from statistics import median
from commands.bench.circuits import barriers
from workloads.program import Group
print(median(barriers(Path(sys.argv[1]), Group("ring", "dp", tuple(range(64))))))
"""
HEAD = """
import json, sys, time
from pathlib import Path
from controllers.engine.jobs import Job
from experiments.spread.machines import Cluster
from experiments.session import Session
from experiments.settings import SpreadSettings
from topos.rails import RailTopo
from workloads.program import Group

names, servers, gpus, folder = json.loads(sys.argv[1])
began, folder = time.monotonic(), Path(folder)
topo, settings = RailTopo(servers=servers, gpus=gpus, rate_mbps=5), SpreadSettings(cluster=names)
said = {}
with Cluster(names) as cluster:
    said["connected"] = time.monotonic() - began
    with Session(settings, topo, folder, cluster=cluster) as session:
        said["up"] = time.monotonic() - began - said["connected"]
        if names:
            said["clocks"] = [machine.clock._asdict() for machine in cluster.machines.values()]
            said["cuts"] = len(session.placed.cuts)
        group = Group("ring", "dp", tuple(range(0, servers * gpus, gpus)))
        session.register(Job("barrier", (group,), "on-demand"), "opus")
        place = cluster.machines["b"].process.remote_folder / "channel" if names else session.channel_path
        (folder / "ready.new").write_text(json.dumps({**said, "channel": str(place)}))
        (folder / "ready.new").rename(folder / "ready")
        while not (folder / "go").exists():
            time.sleep(0.02)
        ended = time.monotonic()
(folder / "down").write_text(str(time.monotonic() - ended))
"""


def main() -> None:
    """Measure the parts that the command line names, or all."""
    os.environ[CONFIG_VARIABLE] = str(SSH_CONFIG)
    parts: dict[str, Callable[[Path], None]] = {"job": job, "barrier": barrier, "ends": ends, "large": large}
    for name in sys.argv[1:] or parts:
        with tempfile.TemporaryDirectory() as folder:
            parts[name](Path(folder))


def job(folder: Path) -> None:
    """The steps of the smoke job over 1, 2 and 3 machines."""
    steps: dict[int, list[float]] = {}
    for count in (1, 2, 3):
        with Machines(count, Underlay(), shared=[folder]) as machines:
            out = folder / str(count)
            spread = ["--cluster", ",".join(machines.names)] if count > 1 else []
            done = machines.head.run([*JOB, *spread, "--out", str(out)], timeout_s=500)
        rows = json.loads((out / "summary.json").read_text())
        steps[count] = [row["step_time_s"] for row in rows]
        slope = (steps[count][-1] - steps[count][0]) / 0.2
        wrong = sum(row["misdelivered"] for row in rows)
        off = [f"{step / model - 1:+.2%}" for step, model in zip(steps[count], steps[1], strict=True)]
        print(f"{count} machines: steps {steps[count]} s, {off} of one machine; slope {slope:.3f} s/s; ", end="")
        print(f"{wrong} packets at a wrong host; {sum(row['faithful'] for row in rows)} of {len(rows)} faithful")
        if count > 1:
            files = sorted(out.glob("points/*/events.jsonl"))
            events = (json.loads(line) for file in files for line in file.read_text().splitlines())
            clocks = [event for event in events if event.get("kind") == "clock"]
            worst = {key: max(clock[key] for clock in clocks) for key in ("uncertainty_s", "bound_s")}
            print(f"  clocks: {len(clocks)} measured, worst {worst}")
        if done.returncode not in (0, 8):
            print(done.stderr)


def up(machines: Machines, folder: Path, names: list[str], servers: int, gpus: int) -> tuple[Any, dict[str, Any]]:
    """The process of a head whose fabric is up, and what it says."""
    folder.mkdir()
    order = json.dumps([names, servers, gpus, str(folder)])
    process = machines.head.start([sys.executable, "-c", HEAD, order])
    wait_until(lambda: (folder / "ready").exists() or process.poll() is not None, 120)
    if process.poll() is not None:
        sys.exit(process.communicate()[1])
    return process, json.loads((folder / "ready").read_text())


def down(process: Any, folder: Path) -> float:
    """Take it down; the seconds that that took."""
    (folder / "go").touch()
    process.wait(60)
    return float((folder / "down").read_text())


def barrier(folder: Path) -> None:
    """The readiness barrier of 64 members, whose messages come from one machine."""
    for number, (names, delay_ms) in enumerate([([], 0.0), (["a", "b"], 0.0), (["a", "b"], 0.5)]):
        with Machines(2, Underlay(delay_ms=delay_ms), shared=[folder]) as machines:
            place = folder / str(number)
            process, said = up(machines, place, names, 64, 1)
            where = machines["b"] if names else machines.head
            took = float(where.run([sys.executable, "-c", BARRIER, said["channel"]]).stdout)
            down(process, place)
        print(f"barrier of 64 members, {len(names) or 1} machines, round trip {2 * delay_ms:g} ms more: ", end="")
        print(f"{took * 1e3:.2f} ms; clocks {said.get('clocks', '')}")


def ends(folder: Path) -> None:
    """The time from kill -9 of the head until nothing of the run is left on any machine."""
    for number in range(5):
        with Machines(2, Underlay(), shared=[folder]) as machines:
            out = folder / str(number)
            process = machines.head.start([*LONG, "--cluster", "a,b", "--out", str(out)])
            wait_until(lambda: agents(machines) == 8, 60)
            time.sleep(2.0)
            began = time.monotonic()
            machines.head.kill(process, signal.SIGKILL)
            wait_until(lambda: not any(map(remains, machines)), 30)
            print(f"kill -9 of the head: nothing left after {time.monotonic() - began:.2f} s")


def large(folder: Path) -> None:
    """256 GPUs over 4 machines."""
    for number in range(3):
        with Machines(4, Underlay(), shared=[folder]) as machines:
            place = folder / str(number)
            process, said = up(machines, place, machines.names, 32, 8)
            took = down(process, place)
        print(f"256 GPUs over 4 machines, {said['cuts']} cut links: connected in {said['connected']:.2f} s, ", end="")
        print(f"up in {said['up']:.2f} s more, down in {took:.2f} s")


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as error:
        sys.exit(str(error.stderr))
