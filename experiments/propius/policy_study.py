"""The policy studies on packets: five jobs share the clients under each policy, for each number of clients and seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from experiments.propius import virtual
from experiments.propius.data.population import stratified
from experiments.propius.metrics.verdict import Expected
from experiments.propius.network import edge_fabric
from experiments.propius.packet_run import PacketPoint, play, verdict_of
from experiments.propius.row import PropiusRow
from experiments.propius.settings import PropiusSettings
from experiments.runner import Runner

RESPONSE_SHARE = 0.25
"""How far the mean response time of a run may be from the model: which clients a round gets is a matter of moments."""


def policy_point(settings: PropiusSettings, policy: str, clients: int, seed: int) -> PacketPoint:
    """The run of one policy."""
    return PacketPoint(
        edge_fabric(settings, clients),
        settings.jobs(),
        stratified(clients, settings.regions, seed),
        policy,
        seed,
        lossy=bool(settings.access_loss or settings.trunk_loss),
    )


def measure_policies(
    runner: Runner, settings: PropiusSettings, points: Iterable[tuple[str, int, int]]
) -> Iterator[PropiusRow]:
    """Run every point (policy, number of clients, seed)."""
    for policy, clients, seed in points:
        yield measure_policy(runner, settings, policy, clients, seed)


def measure_policy(runner: Runner, settings: PropiusSettings, policy: str, clients: int, seed: int) -> PropiusRow:
    """Run one policy on packets; its row, with the prediction in virtual time beside it."""
    point = policy_point(settings, policy, clients, seed)
    row = virtual.policy_row(settings, policy, clients, seed, point.jobs)
    virtual.predict_into(row, virtual.predicted(settings, policy, clients, seed).metrics)
    found = play(runner, settings, point, f"{policy}, {clients} clients, seed {seed}")
    virtual.fill(row, found.metrics, point.jobs, 1 / settings.scale.time)
    row.root_bytes, row.root_received_bytes = found.root.sent, found.root.received
    row.sums_checked, row.wrong_sums = (None, None) if found.sums is None else (found.sums[1], found.sums[0])
    response = Expected("response time", row.response_time_s, row.predicted_response_time_s, RESPONSE_SHARE)
    row.judge(verdict_of(settings, point, found, [response]))
    return row
