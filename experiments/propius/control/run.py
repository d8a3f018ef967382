"""What one edge run on packets consists of, and the settings of each of its processes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from experiments.propius.control.baselines import partition, random_selection_timers
from experiments.propius.control.catalog import load_edge_policy
from experiments.propius.control.control_actor import ControlSettings
from experiments.propius.control.manager_actor import ManagerSettings
from experiments.propius.control.policy import EdgePolicy
from experiments.propius.control.scheduler import Sees
from experiments.propius.control.trunk_actor import TrunkSettings
from experiments.propius.data.client_actor import ClientSettings, Vanishing
from experiments.propius.data.data_requests import Mode
from experiments.propius.data.device import DeviceTimers
from experiments.propius.data.endpoint import PATIENCE_S
from experiments.propius.data.job import EdgeJob
from experiments.propius.data.job_actor import JobSettings
from experiments.propius.data.leaf_actor import LeafSettings
from experiments.propius.data.population import ClientProfile
from experiments.propius.data.root_actor import RootSettings
from railyard.errors import ConfigError
from railyard.plugin import absolute_name
from railyard.scale import goodput_share
from topos.edge_plan import CONTROL, ROOT, EdgePlan

CONTROL_PORT, FIRST_MANAGER_PORT, DATA_PORT, TRUNK_PORT = 7000, 7001, 7100, 7200
MOST_MANAGERS = 64
_IDS_OF_AN_INCARNATION = 1_000_000
_RETRY_S = 1.0
"""Real seconds after which a leaf sends a sum again whose answer was lost."""
_PATIENCE_FACTOR = 3.0
"""A transfer may take so many times what it takes at its rate."""
_EVERYWHERE, _HERE = "0.0.0.0", "127.0.0.1"

Settings = (
    TrunkSettings | ControlSettings | ManagerSettings | RootSettings | LeafSettings | ClientSettings | JobSettings
)


@dataclass(frozen=True)
class TrunkTurns:
    """How the regions take turns on an optical trunk (``experiments.propius.control.trunk``), in emulated seconds.

    ``channel`` is the path of the job channel of the session, ``mtu`` that of the links.
    """

    channel: str
    policy: str
    delay_s: float
    slot_s: float = 0.0
    guard_s: float = 0.0
    mtu: int = 1500


@dataclass(frozen=True)
class EdgeRun:
    """One edge run on packets.

    ``netns_fds`` are the namespaces of the hosts by rank of ``plan``; the processes write to ``folder``. ``size`` is
    that of a model on the emulated wire, in bytes. ``time`` is emulated seconds per real second; in real seconds are
    ``device_timers``, ``idle_s``, after which a leaf flushes, and ``poll_s``, between two questions of a job for its
    sum. In the topology ``star`` clients reach the root without leaf servers. ``sees``: which client managers the
    scheduler sees; None: the first in the mode ``authors``, else all. ``turns`` are those on an optical trunk;
    None: the trunk is electrical.
    """

    plan: EdgePlan
    netns_fds: tuple[int, ...]
    folder: Path
    jobs: tuple[EdgeJob, ...]
    clients: tuple[ClientProfile, ...]
    size: int
    policy: str = "irs"
    mode: Mode = "fixed"
    topology: Literal["tree", "star"] = "tree"
    managers: int = 1
    time: float = 0.1
    seed: int = 1
    verify: bool = False
    sees: Sees | None = None
    idle_s: float = 10.0
    poll_s: float = 5.0
    device_timers: DeviceTimers = DeviceTimers()
    vanishing: tuple[Vanishing, ...] = ()
    turns: TrunkTurns | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.managers <= MOST_MANAGERS:
            raise ConfigError(f"must be from 1 to {MOST_MANAGERS}, not {self.managers}", key="managers")
        if len(self.clients) != self.plan.clients:
            raise ConfigError(
                f"must be {self.plan.clients}, as many as the network has, not {len(self.clients)}", key="clients"
            )
        for fault in self.vanishing:
            if fault.client >= len(self.clients):
                raise ConfigError(
                    f"there is no client {fault.client}; name one below {len(self.clients)}", key="vanishing"
                )

        if (self.turns is not None) != (self.plan.trunk == "ocs"):
            raise ConfigError(
                f"are for an optical trunk, which needs them; the trunk is {self.plan.trunk}", key="turns"
            )
        if self.turns is not None and self.topology == "star":
            raise ConfigError("must be tree with an optical trunk: only leaf servers ask for a turn", key="topology")

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the processes, those that others connect to first."""
        regions = range(len(self.plan.regions))
        leaves = [f"leaf{region}" for region in regions] if self.topology == "tree" else []
        managers = [f"manager{number}" for number in range(self.managers)]
        trunk = [] if self.turns is None else ["trunk"]
        return ("control", "root", *trunk, *managers, *leaves, "jobs", *(f"clients{region}" for region in regions))

    @cached_property
    def assigned(self) -> dict[int, str] | None:
        """The job of each client under the policy ``static`` or one derived from it; None under others."""
        return partition(self.clients, self.jobs, self.seed) if self._loaded.name == "static" else None

    @cached_property
    def client_timers(self) -> DeviceTimers:
        """The timers of the clients, in seconds of the run."""
        own = self.device_timers
        timers = random_selection_timers(own) if self._loaded.blind else own
        return timers.scaled(self.time)

    @cached_property
    def _loaded(self) -> EdgePolicy:
        return load_edge_policy(self.policy, self.seed)

    def patience_s(self, region: int | None = None) -> float:
        """How long a client of ``region`` waits for a transfer, or a leaf or a job (None), in seconds of the run.

        That is three times what a model takes at the rate of the slowest client, or at a fair share of the trunk.
        """
        sharers = len(self.plan.regions) if self.topology == "tree" else len(self.clients)
        rates = [self.plan.trunk_mbps / sharers]
        if region is not None:
            rates += [self.clients[client].rate_mbps for client in self.plan.regions[region].clients]
        return max(PATIENCE_S, _PATIENCE_FACTOR * self.size * 8 / (min(rates) * 1e6))


def settings_of(run: EdgeRun, name: str, incarnation: int, events: Path) -> tuple[str, dict[str, Any], tuple[int, ...]]:
    """(module, settings, descriptors) of the process ``name`` that writes its events to ``events``."""
    kind = name.rstrip("0123456789")
    number = int(name[len(kind) :] or 0)
    module, settings, fds = _KINDS[kind](run, number, incarnation, str(events.absolute()))
    return module, asdict(settings), fds


def _control(run: EdgeRun, _: int, __: int, events: str) -> tuple[str, Settings, tuple[int, ...]]:
    fd = run.netns_fds[CONTROL]
    ports = tuple(range(FIRST_MANAGER_PORT, FIRST_MANAGER_PORT + run.managers))
    sees = run.sees or ("first" if run.mode == "authors" else "all")
    address = (_EVERYWHERE, CONTROL_PORT)
    settings = ControlSettings(fd, address, events, absolute_name(run.policy), run.seed, sees, run.time, ports)
    return "experiments.propius.control.control_actor", settings, (fd,)


def _trunk(run: EdgeRun, _: int, __: int, events: str) -> tuple[str, Settings, tuple[int, ...]]:
    fd = run.netns_fds[CONTROL]
    assert run.turns is not None
    return "experiments.propius.control.trunk_actor", trunk_settings(run.plan, fd, run.turns, events), (fd,)


def trunk_settings(plan: EdgePlan, control_fd: int, turns: TrunkTurns, events: str) -> TrunkSettings:
    """The settings of the arbiter of an optical trunk, on the control host with the namespace ``control_fd``.

    It appends events to the file ``events``.
    """
    return TrunkSettings(
        control_fd,
        (_EVERYWHERE, TRUNK_PORT),
        events,
        turns.channel,
        tuple(region.trunk_port for region in plan.regions),
        turns.policy,
        plan.trunk_mbps * goodput_share(turns.mtu),
        turns.delay_s,
        turns.slot_s,
        turns.guard_s,
    )


def _manager(run: EdgeRun, number: int, incarnation: int, _: str) -> tuple[str, Settings, tuple[int, ...]]:
    fd = run.netns_fds[CONTROL]
    settings = ManagerSettings(
        fd,
        (_EVERYWHERE, FIRST_MANAGER_PORT + number),
        (_HERE, CONTROL_PORT),
        number,
        run.managers,
        run.policy,
        run.seed,
        run.time,
        incarnation * _IDS_OF_AN_INCARNATION,
    )
    return "experiments.propius.control.manager_actor", settings, (fd,)


def _root(run: EdgeRun, _: int, __: int, events: str) -> tuple[str, Settings, tuple[int, ...]]:
    fd = run.netns_fds[ROOT]
    settings = RootSettings(fd, (_EVERYWHERE, DATA_PORT), run.mode, run.size, events, run.verify)
    return "experiments.propius.data.root_actor", settings, (fd,)


def _leaf(run: EdgeRun, number: int, _: int, events: str) -> tuple[str, Settings, tuple[int, ...]]:
    fd, region = run.netns_fds[run.plan.leaf_rank(number)], run.plan.regions[number]
    settings = LeafSettings(
        number,
        fd,
        (region.leaf_ip, DATA_PORT),
        (run.plan.root_ip, DATA_PORT),
        run.mode,
        run.size,
        run.idle_s * run.time,
        events,
        journal=str(run.folder.absolute() / f"journal-leaf{number}"),
        retry_s=_RETRY_S * run.time,
        verify=run.verify,
        patience_s=run.patience_s(),
        arbiter=None if run.turns is None else (region.control_ip, TRUNK_PORT),
    )
    return "experiments.propius.data.leaf_actor", settings, (fd,)


def _clients(run: EdgeRun, number: int, _: int, events: str) -> tuple[str, Settings, tuple[int, ...]]:
    region = run.plan.regions[number]
    fds = tuple(run.netns_fds[run.plan.client_rank(client)] for client in region.clients)
    settings = ClientSettings(
        tuple(run.clients[client] for client in region.clients),
        fds,
        (region.control_ip, CONTROL_PORT),
        (region.leaf_ip if run.topology == "tree" else run.plan.root_ip, DATA_PORT),
        events,
        run.size,
        run.mode,
        run.client_timers,
        run.time,
        run.seed,
        run.verify,
        run.assigned,
        tuple(fault for fault in run.vanishing if fault.client in region.clients),
        run.patience_s(number),
    )
    return "experiments.propius.data.client_actor", settings, fds


def _jobs(run: EdgeRun, _: int, __: int, events: str) -> tuple[str, Settings, tuple[int, ...]]:
    fd = run.netns_fds[ROOT]
    settings = JobSettings(
        fd,
        (run.plan.control_ip, CONTROL_PORT),
        (_HERE, DATA_PORT),
        events,
        run.jobs,
        run.size,
        run.mode,
        run.time,
        run.poll_s,
        run.patience_s(),
    )
    return "experiments.propius.data.job_actor", settings, (fd,)


_KINDS = {
    "control": _control,
    "trunk": _trunk,
    "manager": _manager,
    "root": _root,
    "leaf": _leaf,
    "clients": _clients,
    "jobs": _jobs,
}
