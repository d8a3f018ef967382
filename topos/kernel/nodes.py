"""Hosts and switches whose shell starts only when it is first used, in a namespace that exists already."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from subprocess import Popen, TimeoutExpired
from typing import Any

from mininet.node import Host, Node, Switch

from railyard.errors import MachineError
from topos.kernel import namespaces

_SHELL_S = 2.0
_START_S = 10.0
"""Seconds that a shell may take to show its first prompt."""
_PROMPT = chr(127)
"""The prompt that Mininet gives to every shell."""


class LazyNode(Node):  # type: ignore[misc]
    """A Mininet node without a process until ``cmd``, ``popen``, ``pid`` or a similar member needs one."""

    def __init__(self, name: str, **params: Any) -> None:
        self._shell: Popen[bytes] | None = None
        self._pid: int | None = None
        self._ready = False
        self._starting = False
        self._prompted = False
        self.inNamespace = True
        self.netns_fd: int | None = None
        self.environment: dict[str, str] = {}
        self.hosts_file = ""
        self.on_child: Callable[[int], None] | None = None
        super().__init__(name, **params)

    @classmethod
    def setup(cls) -> None:
        """Do nothing: the emulation has looked for all programs (``needs.check_needs``)."""

    @property
    def started(self) -> bool:
        return self._shell is not None

    @property
    def shell(self) -> Popen[bytes] | None:
        """The shell process; asking for it starts it, once the net is up."""
        if self._shell is None and self._ready and not self._starting:
            self.startShell()
        return self._shell

    @shell.setter
    def shell(self, value: Popen[bytes] | None) -> None:
        self._shell = value

    @property
    def pid(self) -> int | None:
        """Process id of the shell; asking for it starts the shell, once the net is up."""
        if self._pid is None and self._ready and not self._starting:
            self.startShell()
        return self._pid

    @pid.setter
    def pid(self, value: int | None) -> None:
        self._pid = value

    def ready(self, netns_fd: int) -> None:
        """Set the namespace of the node; from now on its shell may start."""
        self.netns_fd = netns_fd
        self._ready = True
        if self.privateDirs:
            super().mountPrivateDirs()

    def startShell(self, mnopts: str | None = None) -> None:
        """Start the shell in the node's namespace and in a mount namespace of its own, as ``mnexec -n`` has it.

        ``MachineError`` says why it cannot start; the next command tries again.
        """
        if not self._ready:
            return
        assert self.netns_fd is not None
        namespaces.check_root_directory()
        in_namespace = self.inNamespace
        self.inNamespace = False  # no ``mnexec -n``: the namespace is there
        self._starting, self._prompted = True, False
        try:
            super().startShell(mnopts)
        except MachineError:
            self.cleanup()
            self._ready = True
            raise
        finally:
            self.inNamespace = in_namespace
            self._starting = False

    def read(self, size: int = 1024) -> str:
        """Read the output of the shell; during its start, everything up to the first prompt."""
        if not self._starting or self._prompted:
            return str(super().read(size))
        output, deadline = "", time.monotonic() + _START_S
        said_more = select.poll()  # select() has no room for descriptors above 1023
        said_more.register(self.stdout, select.POLLIN)
        while not output.endswith(_PROMPT):
            status = self._shell.poll() if self._shell is not None else None
            if time.monotonic() > deadline:
                raise self._not_started(f"showed no prompt within {_START_S:g} s", output)
            if said_more.poll(50):
                output += super().read(size)
            elif status is not None:
                raise self._not_started(f"ended with status {status}", output)
        self._prompted = True
        return output

    def _not_started(self, happened: str, said: str) -> MachineError:
        words = (said.strip().splitlines() or ["it said nothing"])[-1]
        return MachineError(
            f"the shell of {self.name} {happened} ({words}); it needs a mount namespace of its own, as root has in a VM"
        )

    def _popen(self, cmd: list[str], **params: Any) -> Popen[bytes]:
        """Start a process: the shell directly in the node's namespace, any other process by ``mnexec -a``."""
        shell = self._starting and self._shell is None
        own = self.environment | ({"NO_COLOR": "1"} if shell else {})  # who calls ``cmd`` reads words
        if own:
            params["env"] = (params.get("env") or os.environ) | own
        if shell and self.netns_fd is not None:
            with namespaces.inside(self.netns_fd):
                child: Popen[bytes] = super()._popen(_with_own_mounts(cmd, self.hosts_file), **params)
        else:
            child = super()._popen(cmd, **params)
        if self.on_child is not None:
            self.on_child(child.pid)
        return child

    def mountPrivateDirs(self) -> None:
        """Do nothing yet; ``ready`` mounts the private folders."""

    def unmountPrivateDirs(self) -> None:
        """Do nothing: the mounts are in the mount namespace of the shell and disappear with it."""

    def config(self, **params: Any) -> dict[str, Any]:
        results: dict[str, Any] = {}
        if self.intfs:
            self.setParam(results, "setMAC", mac=params.get("mac"))
            self.setParam(results, "setIP", ip=params.get("ip"))
        return results

    def terminate(self) -> None:
        self._ready = False
        shell = self._shell
        if shell is not None and shell.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGHUP)
        self.cleanup()

    def cleanup(self) -> None:
        self._ready = False
        shell, self._shell, self._pid = self._shell, None, None
        if shell is None:
            return
        for table in (self.outToNode, self.inToNode):
            table.pop(self.stdin.fileno(), None)
        self.stdin.close()
        os.close(self.slave)
        try:
            shell.wait(_SHELL_S)
        except TimeoutExpired:
            shell.kill()
            shell.wait()

    def __repr__(self) -> str:
        ports = ",".join(f"{intf.name}:{intf.IP()}" for intf in self.intfList())
        return f"<{type(self).__name__} {self.name}: {ports} pid={self._pid}> "


_OWN_MOUNTS = (
    'mount -n -t sysfs sysfs /sys 2>/dev/null; [ -f "$0" ] && mount -n --bind "$0" /etc/hosts 2>/dev/null; exec "$@"'
)
"""For ``sh -c`` in a new mount namespace: the /sys of the network namespace, and the file $0, if there is one, as
/etc/hosts; then the command $@."""


def _with_own_mounts(cmd: list[str], hosts_file: str) -> list[str]:
    """``mnexec -cd COMMAND`` with a private mount namespace and the mounts of a host in between."""
    mnexec, options, *rest = cmd
    unshare = ["unshare", "--mount", "--propagation", "private"]
    return [mnexec, options, *unshare, "sh", "-c", _OWN_MOUNTS, hosts_file, *rest]


class RailHost(LazyNode, Host):  # type: ignore[misc]
    """A host: a network namespace, with a shell that starts when it is first used."""

    transport: str | None = None
    """Congestion control of its TCP connections; None leaves the kernel's default."""


class RailSwitch(LazyNode, Switch):  # type: ignore[misc]
    """A bridge of the private Open vSwitch; its shell is in the yard and its ``ovs-vsctl`` reaches that instance.

    ``kind`` is ``ocs`` (packets pass only over circuits) or ``electrical``; with ``learning`` and without a controller
    the switch forwards like a plain Ethernet switch. A switch that is not ``controlled`` gets no controller.
    """

    def __init__(self, name: str, **params: Any) -> None:
        self.kind = str(params.get("kind", "electrical"))
        self.learning = bool(params.get("learning", self.kind == "electrical"))
        self.controlled = bool(params.get("controlled", True))
        self.controlIntf = None
        params["inNamespace"] = True  # in the yard; so there is no ``lo`` among its interfaces
        super().__init__(name, **params)

    def start(self, controllers: Any) -> None:
        """Do nothing: the emulation makes all bridges in one transaction."""

    def stop(self, deleteIntfs: bool = True) -> None:
        """Do nothing: the emulation removes all bridges at once."""

    def dpctl(self, *args: Any) -> Any:
        return self.cmd("ovs-ofctl", args[0], self, *args[1:])

    def vsctl(self, *args: Any) -> Any:
        return self.cmd("ovs-vsctl", *args)

    def connected(self) -> bool:
        """Whether the bridge is connected to its controller; True for a bridge without one."""
        uuids = str(self.vsctl("get", "Bridge", self.name, "controller")).strip().strip("[]")
        if not uuids:
            return True
        return "true" in str(self.vsctl("get", "Controller", uuids.split(",")[0], "is_connected"))
