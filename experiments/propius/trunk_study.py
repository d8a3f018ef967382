"""The study of an optical trunk: one root port, the regions take turns; the time of a round against the delay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from experiments.job_point import Fabric
from experiments.propius.control.run import TRUNK_PORT, TrunkTurns, trunk_settings
from experiments.propius.control.trunk_actor import MODULE
from experiments.propius.data_study import IDLE_S
from experiments.propius.live.data_plane import DataHosts
from experiments.propius.live.one_round import RoundSettings, one_round
from experiments.propius.metrics.verdict import EdgeLinks, Expected, judge_edge
from experiments.propius.model.transfers import transfer_s
from experiments.propius.model.trunk import crossing_delay_s, rotor_round_s, shared_round_s, turns_round_s
from experiments.propius.network import edge_fabric
from experiments.propius.packet_run import emulated_size, recorded
from experiments.propius.row import PropiusRow
from experiments.propius.settings import PropiusSettings
from experiments.runner import Runner
from experiments.session import Session
from railyard.child import Child
from railyard.timeline import Event
from topos.edge_plan import CONTROL

CLIENT_MBPS = 20.0
_MTU = 1500
CLIENTS_OF_A_REGION = 2
"""All clients are equal in this study, so that the formula needs no distribution, and few: the trunk is the subject."""
TRAIN_S = 5.0
"""Real seconds of training."""
SLOT_TRANSFERS = 1.2
"""Length of a slot of the rotor, in transfers of one model with their round trips."""
_FORMULA_SHARE = 0.05
_SHARED_SHARE = 0.12
"""How far the time of a round may be from the formula. TCP shares the electrical trunk unevenly, so that some regions
are served early: short transfers took up to a tenth less than the formula, which is an upper bound."""


@dataclass(frozen=True)
class TrunkModel:
    """The times of one round by the formulas of ``experiments.propius.model.trunk``, in real seconds.

    ``transfer_s`` is one model over the trunk with the request to the root; ``turn_s`` adds the messages to and from
    the arbiter. Before a reconfiguration a circuit stays up for ``guard_s``, for the last packets. ``work_s`` is what
    the clients of a region do between hand-out and flush, with the idle time of the leaf.
    """

    regions: int
    transfer_s: float
    turn_s: float
    guard_s: float
    work_s: float

    @staticmethod
    def of(settings: PropiusSettings) -> TrunkModel:
        """The model of the study's network."""
        size, trip_s = settings.object_bytes, 2 * settings.trunk_delay_ms / 1e3
        over_trunk = transfer_s(size, settings.slow_trunk_mbps, trip_s, _MTU)
        at_client = transfer_s(size, CLIENT_MBPS, 2 * settings.access_delay_ms / 1e3, _MTU)
        turn_s, guard_s = over_trunk + trip_s, settings.trunk_delay_ms / 1e3
        return TrunkModel(settings.regions, over_trunk, turn_s, guard_s, 2 * at_client + TRAIN_S + IDLE_S)

    @property
    def slot_s(self) -> float:
        """Length of a slot of the rotor."""
        return SLOT_TRANSFERS * self.turn_s

    def round_s(self, policy: str, delay_s: float, began_s: float = 0.0) -> float:
        """The time of a round; ``began_s`` is that of ``rotor_round_s``."""
        if policy == "electrical":
            return shared_round_s(self.regions, self.transfer_s, self.work_s)
        if policy == "rotor":
            gap_s = delay_s + self.guard_s
            return rotor_round_s(self.regions, self.turn_s, self.work_s, gap_s, self.slot_s, began_s)
        return turns_round_s(self.regions, self.turn_s, self.work_s, delay_s + self.guard_s)

    @property
    def crossing(self) -> str:
        """The delay up to which turns are faster than sharing, as a sentence."""
        delay_s = crossing_delay_s(self.regions, self.transfer_s, self.work_s)
        delay_s -= self.turn_s + self.guard_s - self.transfer_s  # what a turn costs beside the transfer
        return f"Turns on an optical trunk are faster than sharing an electrical one up to a delay of {delay_s:.2f} s"


def trunk_points(settings: PropiusSettings) -> Iterator[tuple[str, float | None]]:
    """(policy, reconfiguration delay in ms) of every round; the electrical trunk comes first."""
    yield "electrical", None
    yield from ((policy, delay) for policy in settings.turns for delay in settings.delays_ms)


def trunk_row(settings: PropiusSettings, policy: str, delay_ms: float | None, began_s: float = 0.0) -> PropiusRow:
    """The row of a round, with the time of the formula."""
    model = TrunkModel.of(settings)
    row = PropiusRow(study="trunk", policy=policy, mode="fixed", topology="tree", delay_ms=delay_ms)
    row.clients, row.regions = settings.regions * CLIENTS_OF_A_REGION, settings.regions
    row.finding = model.crossing
    row.predicted_time_s = model.round_s(policy, (delay_ms or 0.0) / 1e3, began_s)
    row.at(settings.scale.scale(), settings.seed)
    return row


def trunk_fabric(settings: PropiusSettings, policy: str) -> Fabric:
    """The network of the study: few equal clients, and a slow trunk."""
    return edge_fabric(
        settings,
        settings.regions * CLIENTS_OF_A_REGION,
        trunk="electrical" if policy == "electrical" else "ocs",
        trunk_mbps=settings.slow_trunk_mbps,
        client_mbps=CLIENT_MBPS,
    )


def measure_trunk(runner: Runner, settings: PropiusSettings) -> Iterator[PropiusRow]:
    """One round for each policy and delay, all clients starting together."""
    for policy, delay_ms in trunk_points(settings):
        session = runner.session(trunk_fabric(settings, policy))
        yield _measure(runner, settings, session, policy, delay_ms)


def _measure(
    runner: Runner, settings: PropiusSettings, session: Session, policy: str, delay_ms: float | None
) -> PropiusRow:
    scale, plan = settings.scale.scale(), session.plan.edge
    assert plan is not None
    optical = delay_ms is not None
    given = RoundSettings(
        "fixed",
        True,
        emulated_size(settings),
        scale.emulated_s(IDLE_S),
        settings.scale.time,
        scale.emulated_s(TRAIN_S),
        arbiters=[(region.control_ip, TRUNK_PORT) for region in plan.regions] if optical else (),
        together=False,
    )
    title = f"trunk {policy}" + ("" if delay_ms is None else f", {delay_ms:g} ms")
    with recorded(runner, session, title) as (folder, events):
        arbiter: AbstractContextManager[object] = nullcontext()
        if delay_ms is not None:
            arbiter = _arbiter(settings, session, policy, scale.emulated_s(delay_ms / 1e3), folder / "trunk.jsonl")
        with arbiter:
            found = one_round(DataHosts.of(plan, session.netns_fds()), given, folder)
        events += found.events
    gap_s = scale.emulated_s((delay_ms or 0.0) / 1e3 + TrunkModel.of(settings).guard_s)
    began_s = scale.real_s(_into_rotation(found.began, events, gap_s))
    row = trunk_row(settings, policy, delay_ms, began_s if policy == "rotor" else 0.0)
    row.time_s = scale.real_s(found.round_s)
    row.root_bytes, row.root_received_bytes = found.root
    share = _FORMULA_SHARE if optical else _SHARED_SHARE
    expected = Expected("time of a round", row.time_s, row.predicted_time_s, share)
    trip_s = scale.emulated_s(2 * settings.access_delay_ms / 1e3)
    links = EdgeLinks([CLIENT_MBPS] * (settings.regions * CLIENTS_OF_A_REGION), trip_s)
    row.judge(judge_edge(events, links, [expected], plan=session.plan, trains=False))
    return row


def _arbiter(settings: PropiusSettings, session: Session, policy: str, delay_s: float, events: Path) -> Child:
    """The process that hands out the circuits, on the host of the control plane."""
    scale, model, plan = settings.scale.scale(), TrunkModel.of(settings), session.plan.edge
    assert plan is not None and session.channel_path is not None
    fd = session.netns_fds()[CONTROL]
    slot_s = scale.emulated_s(model.slot_s) if policy == "rotor" else 0.0
    turns = TrunkTurns(session.channel_path, policy, delay_s, slot_s, scale.emulated_s(model.guard_s), _MTU)
    given = trunk_settings(plan, fd, turns, str(events))
    return Child(MODULE, asdict(given), [fd], "the arbiter of the trunk", patience_s=2.0)


def _into_rotation(now: float, events: Sequence[Event], gap_s: float) -> float:
    """Seconds until ``now`` since the gap of ``gap_s`` before a slot of region 0 began for the last time."""
    circuits = [event for event in events if event.kind == "trunk" and event["region"] == 0]
    began = [event.t - gap_s for event in circuits if event.t - gap_s <= now]
    return now - max(began) if began else 0.0
