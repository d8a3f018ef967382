"""The studies of the data plane: bytes on the root's link for star and tree."""

from __future__ import annotations

from collections.abc import Iterator

from experiments.propius.live.data_plane import DataHosts
from experiments.propius.live.one_round import RoundSettings, one_round
from experiments.propius.metrics.verdict import EdgeLinks, Expected, judge_edge
from experiments.propius.model.transfers import root_bytes
from experiments.propius.network import edge_fabric
from experiments.propius.packet_run import emulated_size, recorded
from experiments.propius.row import PropiusRow
from experiments.propius.settings import Mode, PropiusSettings
from experiments.runner import Runner
from topos.client_rates import client_rates

IDLE_S = 10.0
"""Real seconds after its last update at which a leaf server flushes."""
LAW_SHARE = 0.02
"""How far the bytes on the root's link may be from the law."""


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
