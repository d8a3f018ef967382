"""An Open vSwitch beside the campaign, as a user of the machine may have one: no run may touch it."""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from typing import Any

from topos.kernel import namespaces
from topos.kernel.ovs import Bridge, PrivateOvs
from topos.kernel.ovsdb import Ovsdb
from topos.kernel.run_registry import RegisteredRun
from topos.kernel.run_watcher import Process

_BRIDGE = "users-bridge"
_COLUMNS = {"Open_vSwitch": ["_uuid", "bridges"], "Bridge": ["_uuid", "name", "ports", "controller", "fail_mode"]}
_READ = [{"op": "select", "table": table, "where": [], "columns": columns} for table, columns in _COLUMNS.items()]


class Bystander:
    """An Open vSwitch with one bridge; a context manager. The thread that starts it must last as long.

    It is in the folder of a run of its own, which the run's watcher removes if the campaign is killed.
    """

    def __init__(self) -> None:
        self._stack = ExitStack()

    def __enter__(self) -> Bystander:
        run = self._stack.enter_context(RegisteredRun.open())
        self.folder = run.path
        try:
            (fd,) = namespaces.make(1)
            self._stack.callback(os.close, fd)
            ovs = PrivateOvs(self.folder, fd, "netdev", run.add_child)
            self._stack.callback(ovs.stop)
            ovs.start()
            ovs.add([Bridge(_BRIDGE, 1, (), standalone=True)])
        except BaseException:
            self._stack.close()
            raise
        self._processes = [Process.of(pid) for pid in ovs.pids.values()]
        self._content = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _read(self) -> Any:
        with closing(Ovsdb(self.folder / "db.sock")) as database:
            return database.transact(*_READ)

    def changes(self) -> list[str]:
        """What has been done to it: a daemon has ended, or its database has changed; empty if it is untouched."""
        if not all(process is not None and process.alive for process in self._processes):
            return ["a daemon of another Open vSwitch was ended"]
        return [] if self._read() == self._content else ["the database of another Open vSwitch was changed"]
