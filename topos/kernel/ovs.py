"""A private Open vSwitch per run, in a network namespace of its own, the yard.

The machine's own Open vSwitch is not touched and runs do not affect each other. When the two daemons and the
namespace are gone, nothing is left.
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from railyard.errors import ConfigError, MachineError
from railyard.priority import set_session_priority
from railyard.process.start import marked_environment, run_program, start_program
from topos.kernel import namespaces
from topos.kernel.namespaces import inside
from topos.kernel.needs import open_vswitch_is
from topos.kernel.netlink import SO_RCVBUFFORCE, SO_SNDBUFFORCE, attributes
from topos.kernel.ovsdb import Ovsdb, Row, as_map, as_set, insert

_REQUEST, _REQUEST_AND_ACK = 1, 5
_ERROR = 2
_CONTROL_FAMILY, _GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 16, 3, 1, 2
_DELETE_DATAPATH, _DATAPATH_NAME = 2, 1
_FAMILY = "ovs_datapath"
_NAME = "ovs-system"
"""The one datapath of all bridges of an ovs-vswitchd; there is at most one in a namespace."""


def _attribute(kind: int, text: str) -> bytes:
    value = text.encode() + b"\0"
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _ask(generic: socket.socket, family: int, flags: int, command: int, version: int, body: bytes) -> bytes | OSError:
    """The kernel's answer to a request: a message with its header, or the error that it reports.

    A request that is answered by a message must not ask for an acknowledgement too: that would be read as the answer to
    the next request.
    """
    body = struct.pack("=BBxx", command, version) + body
    generic.send(struct.pack("=IHHII", 16 + len(body), family, flags, 1, 0) + body)
    answer = generic.recv(65536)
    (kind,) = struct.unpack_from("=H", answer, 4)
    number = -struct.unpack_from("=i", answer, 16)[0] if kind == _ERROR else 0
    return OSError(number, os.strerror(number)) if number else answer


def _family(generic: socket.socket) -> int | None:
    """The number of Open vSwitch's messages about datapaths; None if the kernel has no such module."""
    answer = _ask(generic, _CONTROL_FAMILY, _REQUEST, _GET_FAMILY, 1, _attribute(_FAMILY_NAME, _FAMILY))
    if isinstance(answer, OSError):
        return None
    (length,) = struct.unpack_from("=I", answer)
    families = (start for kind, start, _ in attributes(answer, 20, length) if kind == _FAMILY_ID)
    return next((int(struct.unpack_from("=H", answer, start)[0]) for start in families), None)


def _open() -> socket.socket:
    generic = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 16)
    generic.settimeout(30)
    return generic


def kernel_datapath() -> bool:
    """Whether the kernel has the Open vSwitch datapath; the request loads its module if necessary."""
    with _open() as generic:
        return _family(generic) is not None


def remove_kernel_datapath(netns_fd: int) -> None:
    """Remove the datapath of a namespace, with the ports that it made; does nothing if there is none.

    Its ovs-vswitchd must have ended. Raises ``MachineError`` if the kernel refuses.
    """
    with inside(netns_fd), _open() as generic:
        family = _family(generic)
        if family is None:
            return
        named = struct.pack("=i", 0) + _attribute(_DATAPATH_NAME, _NAME)
        refused = _ask(generic, family, _REQUEST_AND_ACK, _DELETE_DATAPATH, 2, named)
    if isinstance(refused, OSError) and refused.errno != errno.ENODEV:
        raise MachineError(f"the kernel does not remove the datapath {_NAME} of the run: {refused.strerror}")


Datapath = Literal["auto", "system", "netdev"]
_LEAST_ON_ONE_PROCESSOR = 3, 5
"""Open vSwitch 3.1 has no thread for the packets of the kernel's datapath on one processor (it says: overriding
n-handler-threads to 0), and loses them; 3.5 has one."""
_SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")
_START_S = 20.0
_TABLE_S = 10.0
_PACKET_S = 10.0
_TREE_S = 20.0
_STATUS_MS = 5000
"""The least interval in which Open vSwitch writes statistics, and what controllers are connected, to its database."""
_BACKOFF_MS = 1000
_PROBE_MS = 15_000
_NICE = -20
"""Priority of the daemons: the switch emulates hardware, so it must not wait for the hosts' processes."""
_MUTE_FRAME = "0180c2000001" + "020000000000" + "88b5" + "00" * 46
"""A frame that no bridge forwards and no host answers (IEEE 802 local experimental type)."""


@dataclass(frozen=True)
class BridgePort:
    """A port of a bridge: its name and OpenFlow number.

    It is an interface of the yard, or, with an MTU, one that Open vSwitch makes itself (an internal port). Behind one
    at the ``edge`` is a host, so that a spanning tree forwards there at once.
    """

    name: str
    number: int
    mtu: int | None = None
    mac: str | None = None
    edge: bool = False


@dataclass(frozen=True)
class Bridge:
    """A bridge to make; with ``standalone`` and no controller it forwards like a plain Ethernet switch.

    Those with ``spanning_tree`` block ports of loops (RSTP of IEEE 802.1D-2004).
    """

    name: str
    dpid: int
    ports: tuple[BridgePort, ...]
    controllers: tuple[str, ...] = ()
    standalone: bool = False
    spanning_tree: bool = False


def _take_table(name: str, child: subprocess.Popen[str], table: Mapping[str, int]) -> None:
    """Give ``ovs-ofctl`` the table of bridge ``name``; ``MachineError`` if the bridge refuses it or does not answer."""
    flows = "".join(f"priority=10,dl_dst={mac},actions=output:{port}\n" for mac, port in table.items())
    try:
        _, refused = child.communicate(flows, timeout=_TABLE_S)
    except subprocess.TimeoutExpired:
        refused = f"no answer within {_TABLE_S:g} s"
    if child.returncode != 0:
        raise MachineError(f"{name} did not take its forwarding table: {refused.strip()}")


def choose_datapath(asked: Datapath) -> Literal["system", "netdev"]:
    """The datapath to use: the one ``asked`` for, or for ``auto`` the kernel's where it works.

    Raises ``MachineError`` for ``system`` where it does not, ``ConfigError`` for an unknown name.
    """
    if asked not in ("auto", "system", "netdev"):
        raise ConfigError(f"must be auto, system or netdev, not {asked}", key="datapath")
    if asked == "netdev":
        return "netdev"
    served = len(os.sched_getaffinity(0)) > 1 or open_vswitch_is(_LEAST_ON_ONE_PROCESSOR)
    if served and kernel_datapath():
        return "system"
    if asked == "system":
        alone = "Open vSwitch cannot use the kernel's datapath on one processor"
        raise MachineError(
            f"this {'kernel has no Open vSwitch datapath' if served else alone}; use datapath netdev or auto"
        )
    return "netdev"


_PIDFD_GETFD = 438
_RECEIVE_BYTES = 8 << 20
_SEND_BYTES = 256 << 20
"""The switch sends on one socket for all ports, whose buffer holds the packets queued at all of them."""
_libc = ctypes.CDLL(None, use_errno=True)


def widen_buffers(pid: int) -> int:
    """Enlarge the buffers of every packet socket of process ``pid``; returns their number.

    Each port of the userspace datapath reads from a packet socket whose buffer has the system's default size (208 KiB:
    some 10 ms of one 100 Mb/s port), so a switch that the scheduler keeps waiting loses packets that no real switch
    would lose. The default is a setting of the whole machine and stays as it is; ``pidfd_getfd`` (Linux 5.6) gives
    access to the sockets of a child process instead. The number is 0 on a kernel without it.
    """
    widened = 0
    pidfd = os.pidfd_open(pid)
    try:
        for entry in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if not os.readlink(entry).startswith("socket:"):
                    continue
                own = _libc.syscall(_PIDFD_GETFD, pidfd, int(entry.name), 0)
                if own < 0:
                    continue
                with socket.socket(fileno=own) as sock:
                    if sock.family == socket.AF_PACKET:
                        sock.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, _RECEIVE_BYTES)
                        sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, _SEND_BYTES)
                        widened += 1
    finally:
        os.close(pidfd)
    return widened


class PrivateOvs:
    """ovsdb-server and ovs-vswitchd as child processes in namespace ``netns_fd``.

    Sockets, database and logs are in ``run_dir``, the bridges' sockets in ``own_dir``, which may be set to another
    folder before ``start``. ``on_child`` is called with the process id of each child. The children die with the thread
    that called ``start``, so that thread must last as long as the run.
    """

    def __init__(
        self,
        run_dir: Path,
        netns_fd: int,
        datapath: Datapath = "auto",
        on_child: Callable[[int], None] | None = None,
    ) -> None:
        self.run_dir = run_dir
        self.own_dir = run_dir
        self.netns_fd = netns_fd
        self.datapath = choose_datapath(datapath)
        self._on_child = on_child
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._db: Ovsdb | None = None
        self._root: list[str] = []
        self._configuration = 0
        self._status_number = 0

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which ``ovs-vsctl`` and ``ovs-ofctl`` reach this instance."""
        place = str(self.run_dir)
        return {"OVS_RUNDIR": place, "OVS_LOGDIR": place, "OVS_DBDIR": place}

    @property
    def database(self) -> Path:
        return self.run_dir / "db.sock"

    @property
    def pids(self) -> dict[str, int]:
        """Process id of each daemon that was started, by its name."""
        return {name: child.pid for name, child in self._children.items()}

    def start(self) -> None:
        """Start both daemons; returns when the database answers (``add`` waits for the switch).

        Raises ``MachineError`` with what the daemon said last if one does not start.
        """
        database = self.run_dir / "conf.db"
        done = run_program(["ovsdb-tool", "create", str(database), str(_SCHEMA)], _START_S)
        if done.status != 0:
            raise MachineError(f"ovsdb-tool could not make the database of the run in {self.run_dir}: {done.last_line}")
        self._spawn("ovsdb-server", [str(database), f"--remote=punix:{self.database}"])
        self._db = self._connect(self.database)
        other = {"userspace-tso-enable": "true"} if self.datapath == "netdev" else {}
        self._root = self._db.transact(insert("Open_vSwitch", {"other_config": as_map(other)}))[0]["uuid"]
        self._spawn("ovs-vswitchd", [f"unix:{self.database}"])
        if self.own_dir != self.run_dir:  # ovs-appctl looks in the run folder
            for name in ("ovs-vswitchd.pid", f"ovs-vswitchd.{self.pids['ovs-vswitchd']}.ctl"):
                (self.run_dir / name).symlink_to(self.own_dir / name)

    def add(self, bridges: Sequence[Bridge]) -> None:
        """Make all bridges with their ports and controllers in one transaction, and wait until the switch has them.

        Raises ``MachineError`` naming an interface that the switch could not open.
        """
        if not bridges:
            return
        assert self._db is not None, "start() first"
        operations: list[Row] = []
        for number, bridge in enumerate(bridges):
            operations += _bridge_rows(number, bridge, self.datapath)
        self._configuration += 1
        made = as_set([["named-uuid", f"b{number}"] for number in range(len(bridges))])
        operations.append(
            {
                "op": "mutate",
                "table": "Open_vSwitch",
                "where": [["_uuid", "==", self._root]],
                "mutations": [["bridges", "insert", made], ["next_cfg", "+=", 1]],
            }
        )
        self._db.transact(*operations)
        self._wait_applied()
        self._check_interfaces()
        if self.own_dir != self.run_dir:  # ovs-ofctl snoop looks in the run folder
            for bridge in bridges:
                (self.run_dir / f"{bridge.name}.snoop").symlink_to(self.own_dir / f"{bridge.name}.snoop")
        if self.datapath == "netdev" and any(port.mtu is None for bridge in bridges for port in bridge.ports):
            self._widen_buffers(bridges)

    def _widen_buffers(self, bridges: Sequence[Bridge]) -> None:
        """Enlarge the buffers of the switch's packet sockets; a packet out makes it open the one for sending."""
        bridge = next((bridge for bridge in bridges if bridge.ports), None)
        if bridge is None:
            return
        place = self.own_dir / f"{bridge.name}.mgmt"
        message = f"in_port=controller packet={_MUTE_FRAME} actions=output:{bridge.ports[0].number}"
        command = ["ovs-ofctl", "-O", "OpenFlow14", "packet-out", f"unix:{place}", message]
        done = run_program(command, _PACKET_S)
        if done.status < 0:
            raise MachineError(f"{bridge.name} did not take a packet ({done.err})")
        widen_buffers(self._children["ovs-vswitchd"].pid)

    def forward(self, tables: Mapping[str, Mapping[str, int]]) -> None:
        """Add to each bridge a table of MAC address -> OpenFlow port, which goes before what the bridge has learned.

        Raises ``MachineError`` naming a bridge that refuses its table.
        """
        children: dict[str, subprocess.Popen[str]] = {}
        command = ["ovs-ofctl", "-O", "OpenFlow14", "--bundle", "add-flows"]
        try:
            for name in tables:
                place = f"unix:{self.own_dir / name}.mgmt"
                children[name] = start_program(
                    [*command, place, "-"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
                )
            for name, child in children.items():
                _take_table(name, child, tables[name])
        finally:
            for child in children.values():
                child.kill()
                child.communicate()

    def wait_tree(self) -> None:
        """Return when the spanning tree stands: each of its ports forwards or is blocked as one too many.

        Raises ``MachineError`` naming a port that does neither in ``_TREE_S``.
        """
        assert self._db is not None, "start() first"
        select = {"op": "select", "table": "Port", "where": [], "columns": ["name", "rstp_status"]}
        deadline = time.monotonic() + _TREE_S
        while open_ports := [
            row["name"]
            for row, status in ((row, dict(row["rstp_status"][1])) for row in self._db.transact(select)[0]["rows"])
            if not _is_settled(status)
        ]:
            self.check()
            if time.monotonic() > deadline:
                raise MachineError(f"the spanning tree does not stand after {_TREE_S:g} s: {open_ports[0]} waits")
            time.sleep(0.02)

    def is_connected(self, controllers: int) -> bool:
        """Whether at least ``controllers`` connections to controllers are established.

        Open vSwitch says so every 5 s at most, and whenever that interval is changed, as it is here where some are not.
        """
        assert self._db is not None, "start() first"
        # select the _uuid, since a select merges rows that are equal in the selected columns
        select = {"op": "select", "table": "Controller", "where": [["is_connected", "==", True]], "columns": ["_uuid"]}
        if len(self._db.transact(select)[0]["rows"]) >= controllers:
            return True
        self._status_number += 1
        interval = str(_STATUS_MS + self._status_number % 2)
        mutations = [
            ["other_config", "delete", as_set(["stats-update-interval"])],
            ["other_config", "insert", as_map({"stats-update-interval": interval})],
        ]
        where = [["_uuid", "==", self._root]]
        self._db.transact({"op": "mutate", "table": "Open_vSwitch", "where": where, "mutations": mutations})
        return False

    def check(self, patience_s: float = 0.0) -> None:
        """Raise ``MachineError`` if a daemon has ended, or ends within ``patience_s``: it closes its sockets first."""
        deadline = time.monotonic() + patience_s
        while all(child.poll() is None for child in self._children.values()) and time.monotonic() < deadline:
            time.sleep(0.005)
        for name, child in self._children.items():
            status = child.poll()
            if status is not None:
                raise MachineError(f"the private {name} ended with status {status}: {self._last_line(name)}")

    def stop(self) -> None:
        """End both daemons and remove the kernel's datapath; a second call does nothing.

        Raises ``MachineError`` if the kernel does not remove it.
        """
        if self._db is not None:
            self._db.close()
            self._db = None
        for child in self._children.values():
            child.kill()
        for child in self._children.values():
            child.wait()
        if self.datapath == "system" and "ovs-vswitchd" in self._children:
            remove_kernel_datapath(self.netns_fd)
        self._children.clear()

    def _spawn(self, name: str, arguments: list[str]) -> None:
        """Start a daemon in the yard; it dies with this thread, and Ctrl-C in the terminal does not reach it."""
        environment = marked_environment(**self.environment)
        jemalloc = next(iter(sorted(Path("/usr/lib").glob("*/libjemalloc.so.2"))), None)
        if name == "ovs-vswitchd" and jemalloc is not None:
            environment["LD_PRELOAD"] = str(jemalloc)
        if name == "ovs-vswitchd":
            environment["OVS_RUNDIR"] = str(self.own_dir)
        common = ["--pidfile", "--log-file", "--no-chdir", "-vconsole:emer", "-vsyslog:emer"]
        with open(self.run_dir / f"{name}.out", "wb") as output, namespaces.inside(self.netns_fd):
            child = start_program(
                ["nice", "-n", str(_NICE), "setpriv", "--pdeathsig", "KILL", name, *arguments, *common],
                env=environment,
                stdout=output,
                stderr=output,
            )
        set_session_priority(child.pid, _NICE)
        self._children[name] = child
        if self._on_child is not None:
            self._on_child(child.pid)

    def _connect(self, path: Path) -> Ovsdb:
        deadline = time.monotonic() + _START_S
        while True:
            try:
                return Ovsdb(path)
            except OSError:
                self.check()
            if time.monotonic() > deadline:
                last = self._last_line("ovsdb-server")
                raise MachineError(f"the private ovsdb-server did not listen within {_START_S:g} s: {last}")
            time.sleep(0.002)

    def _wait_applied(self) -> None:
        assert self._db is not None
        deadline = time.monotonic() + _START_S + 0.1 * self._configuration
        select = {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["cur_cfg"]}
        while self._db.transact(select)[0]["rows"][0]["cur_cfg"] < self._configuration:
            self.check()
            if time.monotonic() > deadline:
                last = self._last_line("ovs-vswitchd")
                raise MachineError(f"the private ovs-vswitchd did not make the bridges in time: {last}")
            time.sleep(0.005)

    def _check_interfaces(self) -> None:
        assert self._db is not None
        select = {"op": "select", "table": "Interface", "where": [["ofport", "==", -1]], "columns": ["name", "error"]}
        for row in self._db.transact(select)[0]["rows"]:
            raise MachineError(f"Open vSwitch cannot take interface {row['name']}: {row['error']}")

    def _last_line(self, name: str) -> str:
        for suffix in ("out", "log"):  # what ends it goes to standard error
            path = self.run_dir / f"{name}.{suffix}"
            lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
            if lines:
                return lines[-1]
        return "it wrote no log"


def _is_settled(status: Mapping[str, str]) -> bool:
    """Whether a port of a spanning tree, by its state in the database, will stay as it is; one of no tree is."""
    blocked = status.get("rstp_port_role") in ("Alternate", "Backup")
    return not status or blocked or status.get("rstp_port_state") == "Forwarding"


def _bridge_rows(number: int, bridge: Bridge, datapath: str) -> list[Row]:
    rows: list[Row] = []
    ports: list[list[str]] = []
    for port in (BridgePort(bridge.name, 0), *bridge.ports):
        key = f"{number}_{len(ports)}"
        interface: Row = {"name": port.name}
        if port.name != bridge.name:
            interface["ofport_request"] = port.number
        if port.name == bridge.name or port.mtu is not None:
            interface["type"] = "internal"
        if port.mtu is not None:
            interface["mtu_request"] = port.mtu
        if port.mac is not None:
            interface["mac"] = port.mac
        rows.append(insert("Interface", interface, f"i{key}"))
        edge = {"other_config": as_map({"rstp-port-admin-edge": "true"})} if port.edge and bridge.spanning_tree else {}
        rows.append(insert("Port", {"name": port.name, "interfaces": ["named-uuid", f"i{key}"], **edge}, f"p{key}"))
        ports.append(["named-uuid", f"p{key}"])
    controllers = []
    for place, target in enumerate(bridge.controllers):
        row = {"target": target, "max_backoff": _BACKOFF_MS, "inactivity_probe": _PROBE_MS}
        rows.append(insert("Controller", row, f"c{number}_{place}"))
        controllers.append(["named-uuid", f"c{number}_{place}"])
    other = {"datapath-id": f"{bridge.dpid:016x}", "disable-in-band": "true", "dp-desc": bridge.name}
    row = {
        "name": bridge.name,
        "datapath_type": datapath,
        "fail_mode": "standalone" if bridge.standalone else "secure",
        "ports": as_set(ports),
        "controller": as_set(controllers),
        "other_config": as_map(other),
        "rstp_enable": bridge.spanning_tree,
    }
    rows.append(insert("Bridge", row, f"b{number}"))
    return rows
