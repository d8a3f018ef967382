"""The OpenFlow app: the one module that imports the framework (``os-ken``, or ``ryu`` 4.34, of which it is a fork).

``serve`` runs Railyard's own app, ``run_apps`` apps of a user, as the programs of the frameworks do.

Thin on purpose: events of switches (joined, left, barrier reply, error, counters, port change) go to the controller
core, and bytes come back. Replies are handled in the framework's thread that reads the connection, and on native
threads bytes are sent by the thread that has them: queues between threads would take longer than the switch.
``prepare`` must run before anything that opens sockets or threads is imported under ryu, because ryu runs on eventlet's
green threads and patches the standard library for them; after it plain ``threading``, ``socket`` and ``time`` work
under both frameworks.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import select
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from railyard.checkout import SETUP
from railyard.errors import ConfigError, MachineError
from railyard.plugin import check_file
from railyard.signals import wait_for_stop

VERSION = 5
"""Of OpenFlow 1.4, in the header of its messages."""
_HELLO, _MULTIPART_REPLY = 0, 19
_OTHERS = frozenset({1, 2, 3, 6, 12, 21})
"""Error, echo request and reply, features reply, port status, barrier reply."""
_HEADER = 8
_FLOW_STATISTICS, _PORT_STATISTICS, _PORT_DESCRIPTIONS = 1, 4, 13
_ENTRIES = {_FLOW_STATISTICS: (56, 0), _PORT_STATISTICS: (80, 0), _PORT_DESCRIPTIONS: (40, 4)}
"""Multipart replies that are read: the least length of their entries, and where in an entry its length is."""


def is_read(message: bytes) -> bool:
    """Whether a whole message is one that the controller reads; ``ValueError`` if a length in it is too short.

    The parsers of the frameworks follow lengths inside of messages without looking at them: an element of length 0
    keeps them busy for ever, and with them the controller. Layouts: OpenFlow Switch Specification 1.4.0, section 7.
    """
    if int.from_bytes(message[2:4], "big") < _HEADER:
        raise ValueError("a message is shorter than its header")
    kind = message[1]
    if kind == _HELLO:
        _check_entries(message, _HEADER, 4, 2)
        return True
    if message[0] != VERSION:
        return False
    if kind != _MULTIPART_REPLY:
        return kind in _OTHERS
    entries = _ENTRIES.get(int.from_bytes(message[8:10], "big"))
    if entries is not None:
        _check_entries(message, 16, *entries)
    return entries is not None


def _check_entries(message: bytes, at: int, least: int, length_at: int) -> None:
    """Raise ``ValueError`` unless entries of at least ``least`` bytes fill the message from ``at`` on."""
    while at < len(message):
        length = int.from_bytes(message[at + length_at : at + length_at + 2], "big")
        if not least <= length <= len(message) - at:
            raise ValueError(
                f"an entry of a message has the length {length}; it must be {least} to {len(message) - at}"
            )
        at += length


if TYPE_CHECKING:  # loaded only when the framework has patched the standard library
    from collections.abc import Callable, Sequence

    from controllers.openflow.core import ControllerCore
    from controllers.openflow.datapaths import Send

Handler = TypeVar("Handler")

PACKAGES = {"os-ken": "os_ken", "ryu": "ryu"}
"""OpenFlow framework -> the package that it is imported from."""
DEFAULT = "os-ken"
"""The framework that is always installed; ryu is an extra."""
SPIN_S = {"os-ken": 0.0003, "ryu": 0.0018}
"""How long before its time a timer stops sleeping (``clock.Alarm``): eventlet's sleeps round up to a millisecond."""
_MODULES = "cfg", "base.app_manager", "controller.handler", "controller.ofp_event", "ofproto.ofproto_v1_4"
_READER = "controller.ofp_handler"
"""The modules of the framework that are used, and the one whose app reads the connections of switches."""
_MANAGED = "log", "controller.controller", "flags", "topology.switches", "app.wsgi"
"""Modules that declare the options of the framework's program; os-ken has no REST interface, the last."""
PROGRAMS = {"os-ken": "osken-manager", "ryu": "ryu-manager"}
"""Framework -> the name of its program, which starts apps."""
_REMEDIES = {
    "os-ken": "pip install os-ken",
    "ryu": "use os-ken, or install the extra railyard[ryu], which builds with setuptools below 67 only",
}


def check_installed(framework: str) -> None:
    """Raise ``ConfigError`` for an unknown framework, ``MachineError`` for one that is not installed."""
    if framework not in PACKAGES:
        raise ConfigError(f"{framework} is not an OpenFlow framework; use {' or '.join(PACKAGES)}", key="framework")
    if importlib.util.find_spec(PACKAGES[framework]) is None:
        remedy = "scripts/setup.sh installs it" if SETUP.exists() else _REMEDIES[framework]
        raise MachineError(f"{framework} is not installed; {remedy}")


def prepare(framework: str) -> None:
    """Load the framework and, under ryu, patch the standard library for it.

    ``ConfigError`` for an unknown framework, ``MachineError`` for one that is not installed or does not import.
    """
    check_installed(framework)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # ryu dates from 2020, and eventlet warns that it is deprecated
            if framework == "ryu":
                import eventlet.wsgi

                if not hasattr(eventlet.wsgi, "ALREADY_HANDLED"):
                    eventlet.wsgi.ALREADY_HANDLED = object()  # gone from eventlet in 0.30.3; ryu 4.34 imports it
            _module(framework, "lib.hub").patch()
            for name in (*_MODULES, _READER):
                _module(framework, name)
    except ImportError as error:
        raise MachineError(f"{framework} cannot be imported ({error}); install it again") from error


def serve(framework: str, core: ControllerCore, host: str, port: int) -> None:
    logging.getLogger(PACKAGES[framework]).setLevel(logging.ERROR)
    cfg, hub = _module(framework, "cfg"), _module(framework, "lib.hub")
    manager_class = _module(framework, "base.app_manager").AppManager
    handler_module = f"{PACKAGES[framework]}.{_READER}"
    cfg.CONF(
        args=["--ofp-listen-host", host, "--ofp-tcp-listen-port", str(port)],
        project="railyard",
        default_config_files=[],
        default_config_dirs=[],
    )
    _check_messages(framework, core)

    def serve_forever(server: Any) -> None:
        core.listening()
        _serve_switches(hub, server)

    hub.StreamServer.serve_forever = serve_forever
    manager = manager_class.get_instance()
    manager.load_apps([handler_module])
    manager.applications_cls["railyard"] = _app_class(framework)
    threads = manager.instantiate_apps(core=core)
    hub.joinall(threads)


def run_apps(framework: str, arguments: Sequence[str]) -> None:
    """Run apps (files or modules, with the options of the framework's program) until they end or are stopped.

    OpenFlow and REST listen on loopback, unless ``arguments`` or the framework's configuration file say otherwise: the
    framework itself would listen on all addresses, without a password. ``ConfigError`` names an app that cannot be
    loaded or does not start, ``MachineError`` a port that is taken.
    """
    prepare(framework)
    package, hub = PACKAGES[framework], _module(framework, "lib.hub")
    if hub.HUB_TYPE == "native":
        _end_with_process(hub)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in _MANAGED if framework == "ryu" else _MANAGED[:-1]:
            _module(framework, name)
        conf = _read_options(framework, arguments)
        manager = _module(framework, "base.app_manager").AppManager.get_instance()
        apps = [*conf.app_lists, *conf.app] or [f"{package}.{_READER}"]
        for app in apps:
            _load(manager, app)
    check_free(conf.ofp_listen_host, conf.ofp_tcp_listen_port)
    if "wsgi" in manager.contexts_cls:
        check_free(conf.wsapi_host, conf.wsapi_port)
    with _one_sentence(" ".join(apps)):
        services = manager.instantiate_apps(**manager.create_contexts())
        web = _module(framework, "app.wsgi").start_service(manager) if "wsgi" in manager.contexts_cls else None
    if web is not None:
        services.append(hub.spawn(web))
    if hub.HUB_TYPE == "native" and services:
        wait_for_stop()
    hub.joinall(services)


def _read_options(framework: str, arguments: Sequence[str]) -> Any:
    """The framework's configuration, with the options of its program, from ``arguments`` and its own file."""
    cfg, package = _module(framework, "cfg"), PACKAGES[framework]
    if "--user-flags" in arguments[:-1]:
        with _one_sentence("--user-flags"):
            _module(framework, "utils").import_module(arguments[arguments.index("--user-flags") + 1])
    cfg.CONF.register_cli_opts(
        [
            cfg.MultiStrOpt("app", positional=True, default=[], help="file or module of an app"),
            cfg.ListOpt("app-lists", default=[], help="files or modules of apps, with commas between them"),
            cfg.StrOpt("pid-file", help="file for the process id"),
            cfg.StrOpt("user-flags", help="Python file that declares options of an app"),
        ]
    )
    defaults = {"ofp_listen_host": "127.0.0.1", "ofp_tcp_listen_port": 6653, "wsapi_host": "127.0.0.1"}
    for name, value in defaults.items():
        if name in cfg.CONF:
            cfg.CONF.set_default(name, value)
    own = Path(f"/usr/local/etc/{package}/{package}.conf")
    files = [str(own)] if own.exists() else []
    try:
        cfg.CONF(list(arguments), project=package, prog=PROGRAMS[framework], default_config_files=files)
    except cfg.ConfigFilesNotFoundError as error:
        raise ConfigError(str(error), key="--config-file") from None
    _module(framework, "log").init_log()
    if cfg.CONF.pid_file:
        Path(cfg.CONF.pid_file).write_text(str(os.getpid()))
    return cfg.CONF


def _load(manager: Any, app: str) -> None:
    for name in app.split(","):
        if name.endswith(".py"):
            check_file(name, "APP")
    with _one_sentence(app):
        manager.load_apps([app])
    contexts = {context.__module__ for context in manager.contexts_cls.values()}
    for name in app.split(","):
        if name not in manager.applications_cls and name not in contexts:
            raise ConfigError("has no app, a class that is derived from that of this framework", key=name)


@contextmanager
def _one_sentence(what: str) -> Iterator[None]:
    """Raise ``ConfigError`` with the kind, the words and the place of whatever error ``what`` raises in the block."""
    try:
        yield
    except Exception as error:
        # the framework takes a file that Python cannot read for the name of a module
        cause = error.__context__ if isinstance(error.__context__, SyntaxError) else error
        *_, last = traceback.extract_tb(error.__traceback__)
        place = "" if isinstance(cause, (ImportError, SyntaxError)) else f" ({last.filename}:{last.lineno})"
        raise ConfigError(f"cannot be started: {type(cause).__name__}: {cause}{place}", key=what) from error


def check_free(host: str, port: int) -> None:
    """Raise ``MachineError`` if nothing can listen there: the framework would write a traceback and wait for ever."""
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
    except OSError as error:
        raise MachineError(
            f"nothing can listen at {host}:{port}: {os.strerror(error.errno or 0)}; name another port"
        ) from None


def _end_with_process(hub: Any) -> None:
    """Let the threads of the framework end with the process, which would wait for them for ever.

    And not, in silence, with the first error of a handler: os-ken takes an ``Exception`` for the wish to end.
    """
    hub.TaskExit = SystemExit
    make = hub.HubThread.__init__

    def made(thread: threading.Thread, *arguments: Any) -> None:
        make(thread, *arguments)
        thread.daemon = True

    hub.HubThread.__init__ = made


def _check_messages(framework: str, core: ControllerCore) -> None:
    """Let the framework parse only messages that ``is_read`` lets pass; a wrong one ends its connection.

    Flows go to the core as they are: the parsers would follow lengths inside of them.
    """
    parsers, dead = (
        _module(framework, "ofproto.ofproto_parser"),
        _module(framework, "controller.handler").DEAD_DISPATCHER,
    )
    parse = parsers.msg

    def checked(datapath: Any, version: int, kind: int, length: int, xid: int, buffer: Any) -> Any:
        if datapath.state == dead:
            return None
        try:
            read = is_read(bytes(buffer))
        except ValueError as error:
            print(f"controller: a switch that breaks OpenFlow is disconnected: {error}", file=sys.stderr)
            datapath.close()
            datapath.send(b"", close_socket=True)  # ends its send loop, which waits for something to send
            return None
        if read and kind == _MULTIPART_REPLY and int.from_bytes(buffer[8:10], "big") == _FLOW_STATISTICS:
            core.flows_read(xid, bytes(buffer[16:]))
            return None
        return parse(datapath, version, kind, length, xid, buffer) if read else None

    vars(parsers)["msg"] = checked


def _serve_switches(hub: Any, server: Any) -> None:
    """Accept the connections of switches for ever; the framework's own loop ends with the first that fails."""
    from railyard.accepting import accepted

    for connection, address in accepted(server.server.accept, "controller: the OpenFlow port"):
        hub.spawn(server.handle, connection, address)


def _module(framework: str, name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGES[framework]}.{name}")


def _app_class(framework: str) -> type[Any]:
    base: Any = getattr(_module(framework, "base.app_manager"), "RyuApp" if framework == "ryu" else "OSKenApp")
    handler, events = _module(framework, "controller.handler"), _module(framework, "controller.ofp_event")
    protocol = _module(framework, "ofproto.ofproto_v1_4")
    main, dead = handler.MAIN_DISPATCHER, handler.DEAD_DISPATCHER

    def on(event: Any, state: Any) -> Callable[[Handler], Handler]:
        return cast("Callable[[Handler], Handler]", handler.set_ev_cls(event, state))

    native = _module(framework, "lib.hub").HUB_TYPE == "native"

    class RailyardApp(base):  # type: ignore[misc]
        """Forwards the events of the framework to the controller core."""

        OFP_VERSIONS = [protocol.OFP_VERSION]  # noqa: RUF012 - the framework's own convention

        def __init__(self, *args: Any, core: ControllerCore, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.core = core
            self.senders: dict[Any, Send] = {}
            reader = _module(framework, "base.app_manager").lookup_service_brick("ofp_event")
            for event_class, handle in _handlers(core, events, protocol):
                reader.register_handler(event_class, on(event_class, main)(_reported(handle)))

        @on(events.EventOFPStateChange, [main, dead])
        def state_changed(self, event: Any) -> None:
            datapath = event.datapath
            if datapath.id is None:
                return
            if event.state == dead:
                self.core.left(datapath.id, self.senders.pop(datapath, datapath.send))
                return
            self.senders[datapath] = _direct_send(datapath) if native else datapath.send
            self.core.joined(datapath.id, self.senders[datapath])
            if native:
                threading.Thread(target=_watch, args=(datapath,), name="watch", daemon=True).start()

    return RailyardApp


def _handlers(core: ControllerCore, events: Any, protocol: Any) -> list[tuple[Any, Callable[[Any], None]]]:
    """The classes of the messages that the core takes, each with a function that passes one on."""

    def barrier_replied(event: Any) -> None:
        core.answered(event.msg.datapath.id, event.msg.xid)

    def error_came(event: Any) -> None:
        message = event.msg
        kind = protocol.ofp_error_type_to_str(message.type)
        code = protocol.ofp_error_code_to_str(message.type, message.code)
        core.refused(message.datapath.id, message.xid, f"{kind} {code}")

    def ports_counted(event: Any) -> None:
        message = event.msg
        counts = [(port.port_no, port.rx_packets, port.rx_bytes) for port in message.body]
        core.counted(message.datapath.id, message.xid, counts)

    def port_changed(event: Any) -> None:
        message = event.msg
        gone = message.reason == protocol.OFPPR_DELETE or message.desc.state & protocol.OFPPS_LINK_DOWN
        core.port_changed(message.datapath.id, message.desc.port_no, not gone)

    return [
        (events.EventOFPBarrierReply, barrier_replied),
        (events.EventOFPErrorMsg, error_came),
        (events.EventOFPPortStatsReply, ports_counted),
        (events.EventOFPPortStatus, port_changed),
    ]


def _reported(handle: Callable[[Any], None]) -> Callable[[Any], None]:
    """``handle`` with errors printed: one that is raised would end the connection."""

    def call(event: Any) -> None:
        try:
            handle(event)
        except Exception:
            traceback.print_exc()

    return call


class _SharedSocket:
    """A connected socket whose ``sendall`` may be called by several threads, each of which sends whole messages."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._sending = threading.Lock()

    def sendall(self, data: bytes) -> None:
        with self._sending:
            self._connection.sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _direct_send(datapath: Any) -> Send:
    """A function that sends to a switch in the thread that calls it, beside the send loop of the framework."""
    connection = datapath.socket = _SharedSocket(datapath.socket)

    def send(data: bytes) -> bool:
        try:
            connection.sendall(data)
        except OSError:  # a part may have been sent, so nothing can follow it
            datapath.close()
            return False
        return True

    return send


def _watch(datapath: Any) -> None:
    """End the send loop of a switch that has closed its connection.

    Needed on native threads: the framework waits for its send loop, which waits for something to send, and the switch
    would never be reported as gone.
    """
    poll = select.poll()
    poll.register(datapath.socket, select.POLLRDHUP | select.POLLHUP | select.POLLERR)
    poll.poll()
    queue = datapath.send_q
    if queue is not None:
        datapath.close()
        datapath.send(b"", close_socket=True)
