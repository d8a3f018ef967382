"""The controller process: ``python -m controllers.main --plan PLAN.json --channel SOCKET --events FILE ...``.

The process binds its northbound interfaces where it is started, then enters the namespace of the switches (if one is
given) and runs the OpenFlow framework there: people reach it from outside, switches from inside. It ends with its
parent process unless ``--orphan`` is given.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from controllers.northbound.token import MOST_TOKEN, is_token
from controllers.openflow import app
from railyard.errors import ConfigError, MachineError, RailyardError
from railyard.limits import allow_all_open_files
from railyard.priority import set_priority, set_real_time

if TYPE_CHECKING:  # loaded only when the framework has patched the standard library
    from collections.abc import Callable

    from controllers.openflow.core import ControllerCore
    from railyard.timeline import Event
    from topos.plan import FabricPlan

NICENESS = -10
"""Scheduling priority above that of the agents, where no real-time priority is permitted."""
SWITCH_INTERVAL_S = 0.0002
"""How long a thread may keep the interpreter while others wait for it: delays must end within fractions of a
millisecond."""


def main() -> NoReturn:
    """Run the controller until it is told to end."""
    options = _options()
    try:
        _run(options)
    except RailyardError as error:
        print(f"controller: {error}", file=sys.stderr)
        status = error.exit_status
    except KeyboardInterrupt:
        status = 130
    sys.stderr.flush()
    os._exit(status)  # the framework's threads would keep alive a process that cannot serve


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m controllers.main", description="The OpenFlow controller.")
    add = parser.add_argument
    add("--plan", type=Path, required=True, help="the fabric, as JSON (topos.plan)")
    add("--channel", type=Path, required=True, help="path of the job channel's Unix socket")
    add("--channel-owner", type=int, metavar="UID", help="user id that may open the channel, besides root")
    add("--open-channel", action="store_true", help="let all who can enter its folder open the channel")
    add("--events", type=Path, required=True, help="file to append the timeline to")
    add("--points", type=Path, metavar="FOLDER", help="results folder, whose points get the events that are theirs")
    add("--framework", choices=list(app.PACKAGES), default=app.DEFAULT, help="OpenFlow framework (default: os-ken)")
    add("--yard-netns", type=int, metavar="FD", help="descriptor of the switches' network namespace")
    add("--openflow-host", default="127.0.0.1", help="address to listen on for switches (default: 127.0.0.1)")
    add("--openflow-port", type=int, default=6653, help="port to listen on for switches (default: 6653)")
    add("--rest", default="none", help="IP:PORT of the REST server (default: none)")
    add("--rest-fd", type=int, metavar="FD", help="descriptor of a socket that listens on the address of --rest")
    add("--rest-token-fd", type=int, metavar="FD", help="descriptor to read the token of the REST server from")
    add("--ready-fd", type=int, metavar="N", help="descriptor for one line of JSON once all switches have joined")
    add("--ovsdb", type=Path, metavar="SOCKET", help="Open vSwitch's database, to have lost switches connect at once")
    add("--exact-barriers", action="store_true", help="packets follow when a switch replies to a barrier: do not wait")
    add("--take-over", action="store_true", help="begin with the circuits that the switches have of another controller")
    add(
        "--app-socket",
        type=Path,
        metavar="SOCKET",
        help="where an app of the user's connects that sets up all circuits",
    )
    add("--app-owner", type=int, metavar="UID", help="user id that may open --app-socket, besides root")
    add("--bridges", type=Path, metavar="FOLDER", help="with --app-socket: the management sockets of the switches")
    add("--orphan", action="store_true", help="keep running when the parent process ends")
    return parser.parse_args()


def _run(options: argparse.Namespace) -> NoReturn:
    from railyard.process.start import die_with_parent  # an error if variables of the environment are wrong

    if not options.orphan:
        die_with_parent()
    set_priority(NICENESS)
    allow_all_open_files()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if options.app_socket is None:
        app.prepare(options.framework)
    # imported only now: under ryu the standard library has just been patched for green threads
    import threading

    from controllers.northbound import channel, http_server, rest
    from controllers.northbound.app_core import AppCore
    from controllers.numbered_events import NumberedEvents
    from controllers.openflow.clock import Alarm
    from controllers.openflow.core import ControllerCore
    from controllers.openflow.datapaths import EXACT, OPEN_VSWITCH
    from controllers.openflow.recovery import Reconnector
    from topos.kernel import namespaces

    plan = _read_plan(options.plan)
    points = None if options.points is None else options.points.resolve()
    events = NumberedEvents(options.events.parent.resolve() / options.events.name, points)
    token = "" if options.rest == "none" else _read_token(options.rest_token_fd)
    server, hosts = (None, None) if options.rest == "none" else http_server.listen(options.rest, options.rest_fd)
    listener = channel.listen(options.channel, options.channel_owner, anyone=options.open_channel)
    signal.signal(signal.SIGTERM, lambda *_: _leave(options.channel))
    rest_address = None if server is None else server.address

    def ready() -> None:
        if any(switch.mesh is not None for switch in plan.switches):
            _emulate_latency(core, events.add)
        line = json.dumps({"ready": True, "rest": rest_address})
        print(f"controller: all {len(plan.switches)} switches have joined; REST on {rest_address}", file=sys.stderr)
        if options.ready_fd is not None:
            os.write(options.ready_fd, line.encode() + b"\n")
            os.close(options.ready_fd)

    # a thread inherits the namespace of the thread that starts it, so all threads are started after entering it
    if options.yard_netns is not None:
        namespaces.enter(options.yard_netns)
    alarm, caches = Alarm(app.SPIN_S[options.framework]), EXACT if options.exact_barriers else OPEN_VSWITCH
    kind = ControllerCore if options.app_socket is None else AppCore
    core = kind(plan, events.add, ready, alarm=alarm, caches=caches, takes_over=options.take_over)
    core.on_record = events.begin
    set_real_time(threads=True)
    if options.ovsdb is not None:
        core.reconnect = Reconnector(options.ovsdb)
    core.start()
    threading.Thread(target=channel.serve, args=(listener, core), name="channel", daemon=True).start()
    if server is not None:
        server.set_app(rest.make_app(core, token, hosts))
        threading.Thread(target=server.serve, name="rest", daemon=True).start()
    try:
        _serve(options, core)
    finally:
        options.channel.unlink(missing_ok=True)


def _serve(options: argparse.Namespace, core: ControllerCore) -> NoReturn:
    """Serve switches, or the user's app; raises the error that ends the process."""
    from controllers.northbound import channel
    from controllers.northbound.app_core import AppCore
    from controllers.northbound.app_server import AppServer

    if isinstance(core, AppCore):
        print(f"controller: no app has connected to {options.app_socket}", file=sys.stderr)
        listener = channel.listen(options.app_socket, options.app_owner)
        signal.signal(signal.SIGTERM, lambda *_: _leave(options.channel, options.app_socket))
        try:
            AppServer(listener, core, options.bridges).serve()
        finally:
            options.app_socket.unlink(missing_ok=True)
    app.check_free(options.openflow_host, options.openflow_port)
    app.serve(options.framework, core, options.openflow_host, options.openflow_port)
    raise MachineError("the OpenFlow framework stopped by itself")


def _emulate_latency(core: ControllerCore, record: Callable[[Event], None]) -> None:
    """Delay packets by the latency of their paths in meshes, where the kernel can; note on the timeline if it cannot.

    To be called in the namespace of the switches, once their interfaces exist.
    """
    from controllers.openflow.latency import Latencies
    from topos.kernel import path_latency

    latencies = Latencies(core.engine.optical.switches, path_latency.unsupported_reason, path_latency.open_path_latency)
    core.on_darken = latencies.darken
    for note in latencies.notes(time.monotonic()):
        record(note.event())


def _read_token(fd: int | None) -> str:
    """The token in the file or pipe ``fd``, which is closed. ``ConfigError`` if there is none."""
    if fd is not None:
        with suppress(OSError, ValueError), open(fd, encoding="ascii") as file:
            token = file.read(MOST_TOKEN + 1).strip()
            if is_token(token):
                return token
    raise ConfigError(
        "the REST server needs a token of printable ASCII characters; give a descriptor that holds one, such as "
        "--rest-token-fd 3 3<FILE",
        key="rest-token-fd",
    )


def _read_plan(path: Path) -> FabricPlan:
    from railyard.validation import from_plain
    from topos.plan import FabricPlan

    try:
        return from_plain(FabricPlan, path.read_bytes(), "a fabric plan", str(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}", key="plan") from error


def _leave(*sockets: Path) -> NoReturn:
    """End the process at once, without its ``sockets``; the kernel closes its descriptors."""
    for path in sockets:
        path.unlink(missing_ok=True)
    os._exit(0)


if __name__ == "__main__":
    main()
