"""The studies of the data plane: bytes on the root's link for star and tree, and the time of one GET or PUSH."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median

from experiments.job_point import Fabric
from experiments.propius.network import edge_fabric
from experiments.propius.packet_run import emulated_size, recorded
from experiments.propius.row import PropiusRow
from experiments.propius.settings import Mode, PropiusSettings
from experiments.runner import Runner
from measure.live.edge.data_plane import DataHosts
from measure.live.edge.one_round import RoundSettings, one_round
from measure.live.edge.request_times import Kind, Place, request_times
from measure.metrics.edge.verdict import EdgeLinks, Expected, judge_edge
from measure.model.edge.transfers import get_s, root_bytes, root_get_s
from railyard.scale import Scale
from topos.client_rates import client_rates

IDLE_S = 10.0
"""Real seconds after its last update at which a leaf server flushes."""
MICRO_MBPS = 50.0
MTU = 1500
LAW_SHARE = 0.02
"""How far the bytes on the root's link may be from the law."""
_MICRO_SHARE = 0.05
NAMES: dict[Kind, str] = {
    "get": "GET",
    "get_cold": "GET cold",
    "get_warm": "GET warm",
    "push_new": "PUSH new",
    "push_add": "PUSH aggregate",
}


def tree_points(settings: PropiusSettings) -> Iterator[tuple[str, Mode]]:
    """(topology, mode) of the rounds of study ``tree``; a star has no leaf server, so its mode makes no difference."""
    yield "star", "fixed"
    yield from (("tree", mode) for mode in settings.modes)


def tree_row(settings: PropiusSettings, topology: str, mode: Mode) -> PropiusRow:
    """The row of a round, with the bytes that the law gives."""
    scale, clients, regions = settings.scale.scale(), settings.clients, settings.regions
    row = PropiusRow(study="tree", mode=mode, topology=topology, clients=clients, regions=regions)
    row.at(scale, settings.seed)
    sizes = [len(range(region, clients, regions)) for region in range(regions)]
    row.predicted_root_bytes = round(root_bytes(sizes, emulated_size(settings), topology, mode)[1])
    return row


def measure_tree(runner: Runner, settings: PropiusSettings) -> Iterator[PropiusRow]:
    """One round of all clients at once, as a star and as a tree in each mode."""
    scale = settings.scale.scale()
    for topology, mode in tree_points(settings):
        session = runner.session(edge_fabric(settings, settings.clients))
        assert session.plan.edge is not None
        hosts = DataHosts.of(session.plan.edge, session.netns_fds())
        given = RoundSettings(
            mode, topology == "tree", emulated_size(settings), scale.emulated_s(IDLE_S), settings.scale.time
        )
        with recorded(runner, session, f"{topology}, {mode}, {settings.clients} clients") as (folder, events):
            found = one_round(hosts, given, folder)
            events += found.events
        row = tree_row(settings, topology, mode)
        row.root_bytes, row.root_received_bytes = found.root
        row.time_s = scale.real_s(found.hand_out_s)
        law = Expected("bytes sent by the root", row.root_bytes, row.predicted_root_bytes, LAW_SHARE)
        links = EdgeLinks(
            client_rates(settings.clients, settings.regions),
            scale.emulated_s(2 * settings.access_delay_ms / 1e3),
            bottleneck=topology == "tree",
            lossy=bool(settings.access_loss or settings.trunk_loss),
        )
        # In mode authors a flush stops the leaf server, and how many clients find the model is a matter of moments.
        exact = [law] if mode == "fixed" else []
        row.judge(judge_edge(events, links, exact, trains=False, plan=session.plan))
        yield row


def micro_rows(settings: PropiusSettings, delay_ms: float) -> dict[tuple[Place, Kind], PropiusRow]:
    """The rows of one delay of study ``micro``, with the times of the formula."""
    found: dict[tuple[Place, Kind], PropiusRow] = {}
    kinds: dict[Place, Sequence[Kind]] = {
        "leaf": ("get_cold", "get_warm", "push_new", "push_add"),
        "root": ("get", "push_new", "push_add"),
    }
    for place, of_place in kinds.items():
        for kind in of_place:
            row = PropiusRow(study="micro", operation=NAMES[kind], server=place, delay_ms=delay_ms, clients=1)
            row.mode, row.predicted_time_s = "fixed", request_s(settings, place, kind, 2 * delay_ms / 1e3)
            row.at(Scale(1.0, 1.0), settings.seed)
            found[place, kind] = row
    return found


def request_s(settings: PropiusSettings, place: Place, kind: Kind, trip_s: float) -> float:
    """Seconds of a request by the formula: size / rate and round trips; ``trip_s`` is that of each of the two links."""
    size, trunk = settings.micro_bytes, settings.trunk_mbps
    if place == "root":
        return root_get_s(size, MICRO_MBPS, trunk, 2 * trip_s, MTU)
    if kind == "get_cold":
        return get_s(size, MICRO_MBPS, trip_s, trunk_mbps=trunk, trunk_round_trip_s=trip_s, mtu_bytes=MTU)
    return get_s(size, MICRO_MBPS, trip_s, mtu_bytes=MTU)


def micro_fabric(settings: PropiusSettings, delay_ms: float) -> Fabric:
    """The network of study ``micro``, in real time, with ``delay_ms`` on access and trunk links."""
    return edge_fabric(
        settings,
        settings.regions,
        time=1.0,
        access_delay_ms=delay_ms,
        trunk_delay_ms=delay_ms,
        client_mbps=MICRO_MBPS,
    )


def measure_micro(runner: Runner, settings: PropiusSettings) -> Iterator[PropiusRow]:
    """Time each kind of request of one client, at each delay, at real size and in real time."""
    for delay_ms in settings.micro_delays_ms:
        session = runner.session(micro_fabric(settings, delay_ms))
        assert session.plan.edge is not None
        hosts = DataHosts.of(session.plan.edge, session.netns_fds())
        with recorded(runner, session, f"GET and PUSH over {delay_ms:g} ms") as (folder, events):
            times = request_times(hosts, folder, size=settings.micro_bytes, repetitions=settings.repetitions)
        moved = len(times) * settings.micro_bytes
        for (place, kind), row in micro_rows(settings, delay_ms).items():
            row.time_s = median(each.seconds for each in times if (each.at, each.kind) == (place, kind))
            expected = Expected("time", row.time_s, row.predicted_time_s, _MICRO_SHARE)
            links = EdgeLinks([MICRO_MBPS], 2 * delay_ms / 1e3, bottleneck=False)
            row.judge(judge_edge(events, links, [expected], plan=session.plan, trains=False, moved_bytes=moved))
            yield row
