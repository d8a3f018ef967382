"""The OpenFlow app: the one module that imports the framework (``os-ken``, or ``ryu`` 4.34, of which it is a fork).

Thin on purpose: events of switches (joined, left, barrier reply, error, counters, port change) go to the controller
core, and bytes come back. ``prepare`` must run before anything that opens sockets or threads is imported under ryu,
because ryu runs on eventlet's green threads and patches the standard library for them; after it plain ``threading``,
``socket`` and ``time`` work under both frameworks.
"""

from __future__ import annotations

import importlib.util
import logging
import select
import threading
import warnings
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from railyard.checkout import SETUP
from railyard.errors import ConfigError, MachineError

if TYPE_CHECKING:  # loaded only when the framework has patched the standard library
    from collections.abc import Callable

    from controllers.openflow.core import ControllerCore

Handler = TypeVar("Handler")

PACKAGES = {"os-ken": "os_ken", "ryu": "ryu"}
"""OpenFlow framework -> the package that it is imported from."""
DEFAULT = "os-ken"
"""The framework that is always installed; ryu is an extra."""
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
    except ImportError as error:
        raise MachineError(f"{framework} cannot be imported ({error}); install it again") from error


def serve(framework: str, core: ControllerCore, host: str, port: int) -> None:
    """Listen for switches on ``host``:``port`` and run for ever."""
    logging.getLogger(PACKAGES[framework]).setLevel(logging.ERROR)
    cfg, hub = _module(framework, "cfg"), _module(framework, "lib.hub")
    manager_class = _module(framework, "base.app_manager").AppManager
    handler_module = f"{PACKAGES[framework]}.controller.ofp_handler"
    importlib.import_module(handler_module)
    cfg.CONF(
        args=["--ofp-listen-host", host, "--ofp-tcp-listen-port", str(port)],
        project="railyard",
        default_config_files=[],
        default_config_dirs=[],
    )
    manager = manager_class.get_instance()
    manager.load_apps([handler_module])
    manager.applications_cls["railyard"] = _app_class(framework)
    threads = manager.instantiate_apps(core=core)
    hub.joinall(threads)


def _module(framework: str, name: str) -> ModuleType:
    return importlib.import_module(f"{PACKAGES[framework]}.{name}")


def _app_class(framework: str) -> type[Any]:
    """The app, as a subclass of the app class of ``framework``."""
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

        @on(events.EventOFPStateChange, [main, dead])
        def state_changed(self, event: Any) -> None:
            datapath = event.datapath
            if datapath.id is None:
                return
            if event.state == dead:
                self.core.left(datapath.id, datapath.send)
                return
            self.core.joined(datapath.id, datapath.send)
            if native:
                threading.Thread(target=_watch, args=(datapath,), name="watch", daemon=True).start()

        @on(events.EventOFPBarrierReply, main)
        def barrier_replied(self, event: Any) -> None:
            self.core.answered(event.msg.datapath.id, event.msg.xid)

        @on(events.EventOFPErrorMsg, main)
        def error_came(self, event: Any) -> None:
            message = event.msg
            kind = protocol.ofp_error_type_to_str(message.type)
            code = protocol.ofp_error_code_to_str(message.type, message.code)
            self.core.refused(message.datapath.id, message.xid, f"{kind} {code}")

        @on(events.EventOFPPortStatsReply, main)
        def ports_counted(self, event: Any) -> None:
            message = event.msg
            counts = [(port.port_no, port.rx_packets, port.rx_bytes) for port in message.body]
            self.core.counted(message.datapath.id, message.xid, counts)

        @on(events.EventOFPPortStatus, main)
        def port_changed(self, event: Any) -> None:
            message = event.msg
            gone = message.reason == protocol.OFPPR_DELETE or message.desc.state & protocol.OFPPS_LINK_DOWN
            self.core.port_changed(message.datapath.id, message.desc.port_no, not gone)

    return RailyardApp


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
