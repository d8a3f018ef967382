"""How fast the control plane is: rewiring a 64-port optical switch, and the readiness barrier of 64 members.

Both go through everything a run goes through: the job channel, the engine, OpenFlow to a real Open vSwitch and its
barrier reply. Needs root.
"""

from __future__ import annotations

import json
import selectors
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from controllers.northbound.client import ChannelClient
from experiments.bench import Measurement
from experiments.controller_process import ControllerFiles, ControllerProcess
from railyard.protocol import Decoder, encode
from topos.kernel.emulation import Emulation
from topos.rails import RailTopo
from workloads.program import Group

REWIRE_LIMIT_S = 0.004
BARRIER_LIMIT_S = 0.015
REWIRES = 60
BARRIERS = 60
MEMBERS = 64


def rewire_64(framework: str = "ryu") -> list[Measurement]:
    """Every circuit of a 64-port switch replaced, without delay: request to barrier reply, seconds."""
    with controlled(servers=32, framework=framework) as (_, channel), ChannelClient(channel) as client:
        took = [_timed_rewire(client, shift) for shift in range(REWIRES)]
    return _verdict("rewire_64_ports", took, REWIRE_LIMIT_S)


def barrier_64(framework: str = "ryu") -> list[Measurement]:
    """64 members on connections of their own ask for a ring that stands: first request to last ack, seconds."""
    with controlled(servers=MEMBERS, framework=framework) as (_, channel):
        group = Group("ring", "dp", tuple(range(MEMBERS)))
        with ChannelClient(channel) as client:
            client.register("barrier", "opus", "on-demand", [group])
            took = _barriers(channel, group.name)
            client.finish("barrier")
    return _verdict("barrier_64_members", took, BARRIER_LIMIT_S)


def _verdict(name: str, took: list[float], limit_s: float) -> list[Measurement]:
    middle, worst = median(took), max(took)
    return [
        Measurement(f"{name}_median", middle, "s", limit=limit_s, ok=middle <= limit_s),
        Measurement(f"{name}_worst", worst, "s"),
    ]


@contextmanager
def controlled(servers: int, framework: str) -> Iterator[tuple[Emulation, Path]]:
    """One rail of ``servers`` GPUs with two ports each under our controller; yields the net and the job channel."""
    with Emulation(RailTopo(servers=servers, gpus=1, ports=2, rate_mbps=10, fabric="ocs")) as net:
        folder = Path(net.yard.run_dir)
        files = ControllerFiles(
            folder / "plan.json", folder / "channel", folder / "controller.jsonl", folder / "controller.log"
        )
        files.plan.write_text(json.dumps(net.plan.to_json()), encoding="utf-8")
        with ControllerProcess(files, framework, net.yard.netns_fd) as controller:
            controller.wait_ready()
            yield net, files.channel


def _timed_rewire(client: ChannelClient, shift: int) -> float:
    """Two perfect matchings that share no circuit, in turn."""
    ports = 64
    first = shift % 2
    circuits = [(port, port % ports + 1) for port in range(1 + first, ports + 1 + first, 2) if port <= ports]
    began = time.monotonic()
    client.rewire("rail0", circuits, "overwrite", delay_s=0.0)
    return time.monotonic() - began


def _barriers(channel: Path, group: str) -> list[float]:
    """The barrier again and again, all members driven by this process."""
    clients = [ChannelClient(channel) for _ in range(MEMBERS)]
    try:
        with selectors.DefaultSelector() as selector:
            decoders = []
            for rank, client in enumerate(clients):
                selector.register(client, selectors.EVENT_READ, rank)
                decoders.append(Decoder())

            def all_say(op: str, **fields: object) -> float:
                began = time.monotonic()
                for rank, client in enumerate(clients):
                    client.send(encode(rank, op, job="barrier", rank=rank, group=group, **fields))
                waiting = set(range(MEMBERS))
                while waiting:
                    for key, _ in selector.select(10.0):
                        for answer in decoders[key.data].feed(clients[key.data].receive()):
                            assert answer["ok"], answer
                            waiting.discard(key.data)
                return time.monotonic() - began

            all_say("checkin")
            took = []
            for index in range(BARRIERS):
                took.append(all_say("request", index=index))
                all_say("release", index=index)
            return took
    finally:
        for client in clients:
            client.close()
