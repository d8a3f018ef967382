"""One edge run on packets: who takes part, where, and by which rules. All its processes are given this."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from experiments.propius.control.policies import EdgePolicy, Sees, load_edge_policy, partition, random_selection_timers
from experiments.propius.data.clients import ClientProfile, DeviceTimers
from experiments.propius.data.endpoint import PATIENCE_S, Address
from experiments.propius.data.jobs import EdgeJob
from experiments.propius.data.messages import Mode
from railyard.errors import ConfigError
from railyard.plugin import absolute_name
from topos.edge_plan import CONTROL, ROOT, EdgePlan

CONTROL_PORT, FIRST_MANAGER_PORT, DATA_PORT, TRUNK_PORT = 7000, 7001, 7100, 7200
EVERYWHERE, HERE = "0.0.0.0", "127.0.0.1"
IDLE_S = 10.0
"""Real seconds after its last update at which a leaf server flushes."""
_MOST_MANAGERS = 64
_PATIENCE_FACTOR = 3.0
"""A transfer may take so many times what it takes at its rate."""


@dataclass(frozen=True)
class TrunkTurns:
    """How the regions take turns on an optical trunk (``experiments.propius.control.trunk``), in seconds of the run.

    ``channel`` is the socket of the controller's job channel. ``delay_s`` is the reconfiguration delay and ``slot_s``
    the length of a slot of the policy ``rotor``. Before a reconfiguration the circuit stays up for ``guard_s`` without
    transfers, so that what is on its way over the trunk, such as the acknowledgement of the last segment, arrives: at
    least the one-way delay of the trunk.
    """

    channel: str
    policy: str
    delay_s: float
    slot_s: float = 0.0
    guard_s: float = 0.0


@dataclass(frozen=True)
class Vanishing:
    """A client that goes for ever before it delivers its update of ``round``, of any job."""

    client: int
    round: int


@dataclass(frozen=True)
class EdgeRun:
    """One edge run on packets.

    ``netns_fds`` are the namespaces of the hosts by rank of ``plan`` (None: that of this process); the processes write
    to ``folder``. ``size`` is that of a model on the emulated wire, in bytes. ``time`` is emulated seconds per real
    second, ``idle_s`` the real seconds after which a leaf flushes. In the topology ``star`` clients reach the root
    without leaf servers. With ``verify`` updates are float32 numbers that are added, otherwise zeros that are counted.
    ``turns`` are those on an optical trunk; None: the trunk is electrical.
    """

    plan: EdgePlan
    netns_fds: tuple[int | None, ...]
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
    idle_s: float = IDLE_S
    vanishing: tuple[Vanishing, ...] = ()
    turns: TrunkTurns | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.managers <= _MOST_MANAGERS:
            raise ConfigError(f"must be from 1 to {_MOST_MANAGERS}, not {self.managers}", key="managers")
        if len(self.clients) != self.plan.clients:
            raise ConfigError(
                f"must be {self.plan.clients}, as many as the network has, not {len(self.clients)}", key="clients"
            )
        if (self.turns is not None) != (self.plan.trunk == "ocs"):
            raise ConfigError(
                f"are for an optical trunk, which needs them; the trunk is {self.plan.trunk}", key="turns"
            )
        if self.turns is not None and self.topology == "star":
            raise ConfigError("must be tree with an optical trunk: only leaf servers ask for a turn", key="topology")

    def plain(self) -> dict[str, Any]:
        """The run as JSON data, for processes that start in another folder."""
        return {**asdict(self), "folder": str(self.folder.absolute()), "policy": absolute_name(self.policy)}

    @property
    def data_servers(self) -> tuple[str, ...]:
        """The names of the processes of the data plane: of the root server, of the leaf servers and of the trunk."""
        leaves = [f"leaf{region}" for region in range(len(self.plan.regions))] if self.topology == "tree" else []
        return ("root", *([] if self.turns is None else ["trunk"]), *leaves)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all processes, those that others connect to first."""
        managers = [f"manager{number}" for number in range(self.managers)]
        clients = [f"clients{region}" for region in range(len(self.plan.regions))]
        return ("control", *managers, *self.data_servers, "jobs", *clients)

    def ranks(self, name: str) -> tuple[int, ...]:
        """The hosts of the process ``name``."""
        role, number = split_name(name)
        if role == "leaf":
            return (self.plan.leaf_rank(number),)
        if role == "clients":
            return tuple(self.plan.client_rank(client) for client in self.plan.regions[number].clients)
        return (ROOT if role in ("root", "jobs") else CONTROL,)

    def client_fd(self, client: int) -> int | None:
        return self.netns_fds[self.plan.client_rank(client)]

    def data_address(self, region: int) -> Address:
        """The server that the clients of ``region`` get models from and push updates to."""
        return (self.plan.regions[region].leaf_ip if self.topology == "tree" else self.plan.root_ip, DATA_PORT)

    @property
    def manager_ports(self) -> tuple[int, ...]:
        """The port of each client manager on the host of the control plane."""
        return tuple(range(FIRST_MANAGER_PORT, FIRST_MANAGER_PORT + self.managers))

    @property
    def sees(self) -> Sees:
        return "first" if self.mode == "authors" else "all"

    @cached_property
    def assigned(self) -> dict[int, str]:
        """The job of each client under the policy ``static`` or one derived from it; empty under others."""
        return partition(self.clients, self.jobs, self.seed) if self._loaded.name == "static" else {}

    @cached_property
    def client_timers(self) -> DeviceTimers:
        """The timers of the clients, in seconds of the run."""
        timers = random_selection_timers(DeviceTimers()) if self._loaded.blind else DeviceTimers()
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


def split_name(name: str) -> tuple[str, int]:
    """(role, number) of a process; the number is 0 where there is one of the role only."""
    role = name.rstrip("0123456789")
    return role, int(name[len(role) :] or 0)
