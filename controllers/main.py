"""The controller process: ``python -m controllers.main --plan PLAN.json --channel SOCKET --events FILE ...``.

It binds its northbound faces where it is started, then enters the namespace of the switches (if one is given), then
runs the OpenFlow framework there. So people reach it from outside and switches from inside. It dies with its parent.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from controllers.openflow import app
from railyard.errors import ConfigError, MachineError, RailyardError
from railyard.priority import set_priority
from topos.plan import FabricPlan

if TYPE_CHECKING:  # loaded only when the framework has patched the standard library
    from collections.abc import Callable

    from controllers.openflow.core import ControllerCore
    from railyard.timeline import Event

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
NICENESS = -10
"""Ahead of the agents, where we may: the end of a delay is a matter of fractions of a millisecond."""


def main(arguments: list[str] | None = None) -> int:
    """Run the controller; returns only if it cannot."""
    options = _options(arguments)
    try:
        _run(options)
    except RailyardError as error:
        print(f"controller: {error}", file=sys.stderr)
        return error.exit_status
    except KeyboardInterrupt:
        return 130


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m controllers.main", description="The OpenFlow controller.")
    add = parser.add_argument
    add("--plan", type=Path, required=True, help="the fabric, as JSON (topos.plan)")
    add("--channel", type=Path, required=True, help="path of the job channel's Unix socket")
    add("--channel-owner", type=int, metavar="UID", help="the user who may open the channel beside root")
    add("--events", type=Path, required=True, help="file that the timeline is appended to")
    add("--framework", choices=list(app.PACKAGES), default="ryu", help="OpenFlow framework (default: ryu)")
    add("--yard-netns", type=int, metavar="FD", help="descriptor of the namespace where the switches are")
    add("--openflow-host", default="127.0.0.1", help="address to listen on for switches (default: 127.0.0.1)")
    add("--openflow-port", type=int, default=6653, help="port to listen on for switches (default: 6653)")
    add("--rest", default="127.0.0.1:0", help="HOST:PORT of the REST server, or none (token: RAILYARD_TOKEN)")
    add("--ready-fd", type=int, metavar="N", help="descriptor that gets one line of JSON when all switches joined")
    add("--orphan", action="store_true", help="go on living when the parent process dies")
    return parser.parse_args(arguments)


def _run(options: argparse.Namespace) -> NoReturn:
    if not options.orphan:
        _die_with_parent()
    set_priority(NICENESS)
    app.prepare(options.framework)
    # only now: under ryu the standard library has just been patched for green threads
    import threading

    from controllers.northbound import channel, rest
    from controllers.openflow.core import ControllerCore

    plan = _read_plan(options.plan)
    try:
        events = options.events.open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise ConfigError(f"{options.events} cannot be written: {error.strerror}", key="events") from error
    writing = threading.Lock()

    def record(event: Event) -> None:
        with writing:
            events.write(event.to_line() + "\n")

    token = os.environ.pop("RAILYARD_TOKEN", None) or None
    server, hosts = (None, None) if options.rest == "none" else rest.listen(options.rest, token)
    listener = channel.listen(options.channel, options.channel_owner)
    signal.signal(signal.SIGTERM, lambda *_: _leave(options.channel))
    where = None if server is None else "{}:{}".format(*server.server_address[:2])

    def ready() -> None:
        if any(switch.mesh is not None for switch in plan.switches):
            _emulate_latency(core, record)
        line = json.dumps({"ready": True, "rest": where})
        print(f"controller: all {len(plan.switches)} switches have joined; REST on {where}", file=sys.stderr)
        if options.ready_fd is not None:
            os.write(options.ready_fd, line.encode() + b"\n")
            os.close(options.ready_fd)

    if options.yard_netns is not None:
        _enter(options.yard_netns)
    # threads inherit the namespace of the one that starts them, so they all come after it
    core = ControllerCore(plan, record, ready)
    core.start()
    threading.Thread(target=channel.serve, args=(listener, core), name="channel", daemon=True).start()
    if server is not None:
        server.set_app(rest.make_app(core, token, hosts))
        threading.Thread(target=server.serve, name="rest", daemon=True).start()
    _check_free(options.openflow_host, options.openflow_port)
    try:
        app.serve(options.framework, core, options.openflow_host, options.openflow_port)
    finally:
        options.channel.unlink(missing_ok=True)
    raise MachineError("the OpenFlow framework stopped by itself")


def _emulate_latency(core: ControllerCore, record: Callable[[Event], None]) -> None:
    """Hold packets back for as long as light is under way in a mesh, where the kernel can; say on the timeline if not.

    In the namespace of the switches, and once their interfaces are there.
    """
    from controllers.openflow.latency import Latencies
    from topos.kernel import path_latency

    latencies = Latencies(core.engine.optical.switches, path_latency.unsupported_reason, path_latency.open_path_latency)
    core.on_darken = latencies.darken
    for note in latencies.notes(time.monotonic()):
        record(note.event())


def _read_plan(path: Path) -> FabricPlan:
    try:
        return FabricPlan.from_json(json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", key="plan") from error
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path} is not a fabric plan as topos writes it: {error}", key="plan") from error


def _check_free(host: str, port: int) -> None:
    """``MachineError`` if the switches' port is taken; the framework would only log it and stop."""
    import socket

    try:
        socket.create_server((host, port)).close()
    except OSError as error:
        raise MachineError(f"switches cannot be listened for on {host}:{port}: {error.strerror or error}") from error


def _leave(channel: Path) -> NoReturn:
    """End at once; the kernel closes the rest."""
    channel.unlink(missing_ok=True)
    os._exit(0)


def _libc(call: str, *arguments: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, call)(*arguments) != 0:
        code = ctypes.get_errno()
        raise MachineError(f"{call} failed: {os.strerror(code)}")


def _enter(namespace_fd: int) -> None:
    """Move this thread, and those it will start, into a network namespace."""
    _libc("setns", namespace_fd, CLONE_NEWNET)


def _die_with_parent() -> None:
    parent = os.getppid()
    _libc("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # the framework's threads would keep a process alive that cannot serve
