"""A fabric that stays up, and what can be done with it: the operations of its daemon, in the daemon's only thread."""

from __future__ import annotations

import inspect
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from textwrap import fill, shorten
from typing import Any, get_args

from mininet.topo import Topo
from mininet.util import makeNumeric

from commands.lab.client import USAGE
from controllers.engine.jobs import Job
from experiments.controller_process import READY_TIMEOUT_S
from experiments.fabric_acts import FabricActs, change_links
from experiments.point_run import counted
from experiments.remote_controller import RemoteController
from experiments.session import Session
from experiments.settings import PacketSettings, validated
from experiments.timetable import EVENTS, TimedAct, Timetable, check, parse
from measure.metrics.fidelity import stretch_verdict
from railyard.errors import CircuitError, ConfigError, ControlError, RailyardError, nearest
from railyard.ownership import remove_file
from railyard.plugin import code_failed, load_class
from railyard.timeline import read_events
from topos.fabric import FabricTopo
from topos.kernel.emulation import OPENFLOW, Emulation
from topos.kernel.links import RecordedIntf, changing
from topos.kernel.reach import Reach
from topos.options import flag, number, one_of
from topos.plan import FabricPlan
from topos.reach import fabric_lines, ring

TOPOLOGIES = {
    "rails": "topos.rails:RailTopo",
    "racks": "topos.racks:RackTopo",
    "edge": "topos.edge:EdgeTopo",
    "morphlux": "topos.racks:MorphluxTopo",
}
"""Name of a fabric of ours -> its topology."""
NO_CONTROLLER = "none"
_MOST_DONE = 20
_SEEN_S, _AGAIN_S = 2.0, 0.005
_MOST_DARK_MS = 10_000.0
_COLUMNS = 80
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")


@dataclass(frozen=True)
class LabSpec:
    """A topology with its options (text), and who controls its switches, as ``railyard up`` has them.

    ``controller`` is a framework for Railyard's controller, ``remote`` for the user's at ``remote``, or ``none``.
    Circuits that change are dark for ``dark_ms``. Links are ``changing`` if their rates will change often. ``rest`` is
    the address of a REST interface (empty: none), ``rest_token_file`` the file with its token.
    """

    topology: str
    options: Mapping[str, str] = field(default_factory=dict)
    name: str = "lab"
    controller: str = "os-ken"
    remote: str = "127.0.0.1:6653"
    datapath: str = "auto"
    dark_ms: float = 0.0
    changing: str = "no"
    rest: str = ""
    rest_token_file: str = ""

    def check(self) -> None:
        """Raise ``ConfigError`` for a name that is none, and for an unknown controller."""
        if not _NAME.fullmatch(self.name):
            raise ConfigError("must be up to 32 letters, digits, - or _, as in lab", key="--name")
        known = get_args(PacketSettings.model_fields["controller"].annotation)
        one_of("--controller", self.controller, (*known, NO_CONTROLLER))

    def settings(self) -> PacketSettings:
        controller = "os-ken" if self.controller == NO_CONTROLLER else self.controller
        values = {"controller": controller, "remote": self.remote, "datapath": self.datapath}
        return validated(PacketSettings, values, options={key: f"--{key}" for key in values})

    def kind(self) -> type[Topo]:
        """The class of the topology; ``ConfigError`` for an unknown one."""
        path = TOPOLOGIES.get(self.topology, self.topology)
        return load_class(path, Topo, "railyard.topologies", "a topology", "up", TOPOLOGIES)

    def parameters(self) -> list[inspect.Parameter]:
        """The options that the topology names; the last one is ``**options`` if it takes others too."""
        parameters = inspect.signature(self.kind().build).parameters.values()
        return [one for one in parameters if one.kind != one.VAR_POSITIONAL and one.name != "self"]

    def topo(self) -> Topo:
        """The topology; ``ConfigError`` for an unknown one or a wrong option, and one without a host.

        Topologies of ours read text. Others get numbers where the text is one, as from ``mn``, and true and false.
        """
        kind, parameters = self.kind(), self.parameters()
        known = [one.name for one in parameters]
        for key in self.options:
            if known and key not in known and parameters[-1].kind != inspect.Parameter.VAR_KEYWORD:
                there = nearest(key, known, "--").replace("_", "-")
                raise ConfigError(f"is no option of {self.topology}{there}", key=f"--{key}")
        options = self.options if issubclass(kind, FabricTopo) else {k: _value(v) for k, v in self.options.items()}
        try:
            topo = kind(**options)
        except RailyardError:
            raise
        except Exception as error:
            raise code_failed(self.topology, error, "up") from error
        if not topo.hosts():
            raise ConfigError(f"{self.topology} has no host; a lab needs one to run programs on", key="up")
        return changing(topo) if flag("--changing", self.changing) else topo


class Stretch:
    """The stretch ``name`` on the fabric of ``session``, from now until ``end``: what links carried, and a verdict."""

    def __init__(self, name: str, session: Session) -> None:
        self.name = name
        self._session = session
        self._log = session.data / f"{name}.jsonl"
        self._began = time.monotonic()
        self._stack = ExitStack()
        self._counted = self._stack.enter_context(counted(session, self._log))

    def end(self) -> str:
        """The verdict, as text on 80 columns: what was carried, then each check."""
        lasted_s = time.monotonic() - self._began
        with self._stack:
            pass
        events = sorted([*read_events(self._log), *self._counted.events], key=lambda event: event.t)
        remove_file(self._log)
        carried = self._counted.delivered
        assert carried is not None, "the counters were read twice"
        verdict = stretch_verdict(events, self._session.plan, carried.sent_packets, carried.misdelivered)
        lost = "not known" if carried.lost_packets is None else str(carried.lost_packets)
        lines = [
            f"{self.name}, {lasted_s:.1f} s of wall-clock time: {'faithful' if verdict.faithful else 'NOT FAITHFUL'}",
            f"rails: {carried.sent_bytes} bytes in {carried.sent_packets} packets sent, {carried.received_bytes} bytes "
            "received;",
            f"  {lost} packets lost (at dark ports or full queues)",
        ]
        for one in verdict.checks:
            state = "ok " if one.ok and one.judged else "-  " if one.ok else "NO "
            lines.append(f"  {state} {one.says}")
        return "\n".join(fill(line, _COLUMNS, subsequent_indent=" " * 6, break_on_hyphens=False) for line in lines)


class Lab:
    """One fabric that is up, as a context manager; each operation takes the words that a person typed.

    An operation returns text to print. ``ConfigError`` and the other errors of Railyard say what would work.
    """

    def __init__(self, spec: LabSpec) -> None:
        self.spec = spec
        self._settings, self._topo = spec.settings(), spec.topo()
        self.session: Session | None = None
        self.remote: RemoteController | None = None
        self.net: Emulation
        self.reach: Reach
        self.up_since = time.monotonic()
        self.stretch: Stretch | None = None
        self.begin_timetable: Callable[[Timetable[TimedAct]], None]
        """Set by what serves the lab: it waits for the times of a timetable."""
        self.done = deque[str](maxlen=_MOST_DONE)
        """What timetables did, and when."""
        self._stack = ExitStack()

    def __enter__(self) -> Lab:
        with self._stack as stack:
            if isinstance(self._topo, FabricTopo) and self.spec.controller != NO_CONTROLLER:
                self.session = stack.enter_context(Session(self._settings, self._topo))
                self.net, self.remote = self.session.net, self.session.remote
            else:
                self.net = self._bring_up(stack)
            self.reach = Reach(self.net)
            self._first_circuits()
            self.follow()
            self._stack = stack.pop_all()
        return self

    def _bring_up(self, stack: ExitStack) -> Emulation:
        """A fabric whose switches forward by themselves, or one of the user's own with a remote controller."""
        remote = self.spec.controller == "remote"
        net = Emulation(self._topo, datapath=self._settings.datapath, openflow=OPENFLOW if remote else None)
        stack.callback(net.stop)
        net.start()
        if remote:
            self.remote = RemoteController(net, self._settings.remote)
            stack.callback(self.remote.close)
            self.remote.wait_connected(READY_TIMEOUT_S)
        return net

    def _first_circuits(self) -> None:
        """Join neighbours, so that the first ping answers; a mesh that cannot hold the ring stays dark."""
        dark_s = number("--dark-ms", self.spec.dark_ms, 0, _MOST_DARK_MS, "ms") / 1e3
        ours = self.wired
        if ours is None:
            if dark_s:
                self.net.keep_dark(dark_s)
            return
        for switch, pairs in ring(ours.plan).items():
            with suppress(CircuitError):
                ours.call("rewire", switch=switch, circuits=pairs, update="overwrite", delay_s=0.0)
        if dark_s:
            ours.register(Job("lab", (), "native", reconfiguration_delay_s=dark_s), "static")

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def plan(self) -> FabricPlan | None:
        """The plan of the fabric; None for a topology of the user's own whose hosts are not ranks."""
        return self.net.plan if isinstance(self.net.topo, FabricTopo) else None

    @property
    def wired(self) -> Session | None:
        """The session, where Railyard's controller wires the switches."""
        return self.session if self.session is not None and self.session.controller is not None else None

    def check(self) -> None:
        """Raise the error of the process that has ended, if one has."""
        if self.session is not None:
            self.session.check()
        else:
            self.net.check()

    def circuits(self) -> dict[str, list[list[int]]]:
        """The circuits of each optical switch, as the controller of ours has them; none without it."""
        return _circuits(self._switches())

    def follow(self, *, force: bool = False) -> dict[str, list[list[int]]]:
        """Let names and routes of the hosts follow the circuits, which also change by themselves, as after a repair.

        Returns the circuits.
        """
        circuits = self.circuits()
        self.reach.follow(circuits, force=force)
        return circuits

    @property
    def operations(self) -> dict[str, Callable[..., Any]]:
        own: tuple[Callable[..., Any], ...] = (
            self.status,
            self.enter,
            self.address,
            self.connect,
            self.disconnect,
            self.fail,
            self.restore,
            self.set,
            self.at,
            self.mark,
            self.verdict,
        )
        return {operation.__name__: operation for operation in own}

    # ---- operations --------------------------------------------------------------------------------------------------

    def status(self, words: Sequence[str] = ()) -> str:
        """Hosts with their addresses, circuits, and who acts on the switches; with ``--json`` as JSON."""
        if words not in ([], ["--json"], ()):
            raise ConfigError("usage: railyard status [--json]")
        facts = self.facts()
        if words:
            return json.dumps(facts, indent=2)
        return status_text(facts, self.plan)

    def facts(self) -> dict[str, Any]:
        try:
            self.check()
            gone = self.remote is not None and not self.remote.relay.relays
            trouble = f"no controller is connected; start yours at {self.spec.remote} again" if gone else None
        except RailyardError as error:
            trouble = str(error)
        switches = [] if trouble else self._switches()
        keys = "name", "ip", "mac", "rate_mbps"  # of an interface
        ports = {
            host.name: [{key: getattr(intf, key) for key in keys} for intf in host.intfList()]
            for host in self.net.hosts
        }
        return {
            "name": self.spec.name,
            "topology": self.spec.topology,
            "controller": self.spec.controller,
            "datapath": self.net.datapath,
            "up_s": round(time.monotonic() - self.up_since, 1),
            "hosts": ports,
            "switches": [switch.name for switch in self.net.switches],
            "circuits": _circuits(switches),
            "failed": [] if trouble else [*self.net.live.failed, *_failed_ports(switches)],
            "timetables": list(self.done),
            "trouble": trouble,
        }

    def enter(self, host: str) -> dict[str, Any]:
        """Where a program finds a host: its namespace, its file of names, and the variables by which it ends here."""
        self._check_host(host)
        self.follow()
        return {
            "name": host,
            "netns": self.net.netns_fd(host),
            "hosts": str(self.reach.folder / host),
            "environment": self.net.run.environment,
        }

    def address(self, host: str, peer: str) -> str:
        """The address by which ``host`` reaches ``peer``; ``ConfigError`` if no circuit joins them."""
        self._check_host(host)
        self._check_host(peer)
        if self.follow() and peer not in (host, *self.reach.ways.get(host, {})):
            raise ConfigError(f"no circuit joins {host} and {peer}; status lists the circuits, connect makes one")
        return self.reach.address(host, peer)

    def connect(self, words: Sequence[str]) -> str:
        """Join ports of a switch, in pairs (``1 3`` or ``1-3``); returns when the circuits stand."""
        return self._act(["connect", *words])

    def disconnect(self, words: Sequence[str]) -> str:
        return self._act(["disconnect", *words])

    def fail(self, words: Sequence[str]) -> str:
        return self._act(["fail", *words])

    def restore(self, words: Sequence[str]) -> str:
        return self._act(["restore", *words])

    def set(self, words: Sequence[str]) -> str:
        """Change rate, delay and loss of a link, or the congestion control of a host (``transport=reno``)."""
        if len(words) == 2 and words[1].startswith("transport="):
            self._check_host(words[0])
            self.net.set_transport(words[0], words[1].partition("=")[2])
            return ""
        return self._act(["set", *words])

    def at(self, words: Sequence[str]) -> str:
        """Do what a timetable says, its times counted from now; what was refused is in ``status``."""
        acts = parse([*words], traces=False)  # as a list it names no file, and the client has read those of traces
        if not acts:
            raise ConfigError("has no act; write one such as '1s connect rail0 1-3'", key=EVENTS)
        if any(act.at_s is None for act in acts):
            raise ConfigError("a lab has no steps; give times, as in '2s fail rail0:3'", key=EVENTS)
        self._check_acts(acts)
        begin = time.monotonic()
        self.begin_timetable(Timetable(acts, lambda act: begin + (act.at_s or 0.0), self._timed))
        return f"{len(acts)} act{'s'[: len(acts) > 1]}, the last in {acts[-1].at_s:g} s"

    def mark(self, words: Sequence[str]) -> str:
        """Begin a stretch that ``verdict`` judges: read all counters, and sample links and processors from now on."""
        name, session = (words or ["stretch"])[0], self.session
        if len(words) > 1 or not _NAME.fullmatch(name):
            raise ConfigError("usage: railyard mark [NAME]")
        if session is None:
            raise ConfigError("this lab has no plan to be judged by; mark works on rails, racks and edge")
        if self.stretch is not None:
            raise ConfigError(f"the stretch '{self.stretch.name}' is under way; railyard verdict ends it")
        self.stretch = Stretch(name, session)
        return f"{name}: all counters were read; run your programs, then: railyard verdict"

    def verdict(self, words: Sequence[str]) -> str:
        """End the stretch under way, and judge whether the emulation kept its promises meanwhile."""
        stretch = self.stretch
        if stretch is None:
            raise ConfigError("no stretch is under way; railyard mark begins one")
        if words and list(words) != [stretch.name]:
            raise ConfigError(f"{' '.join(words)} is not under way; {stretch.name} is", key="verdict")
        self.stretch = None
        return stretch.end()

    # ---- inside ------------------------------------------------------------------------------------------------------

    def _act(self, words: Sequence[str]) -> str:
        """Do one act now; it has been done when this returns, or is refused by an error."""
        try:
            if any(set(word) & set(";\n") for word in words):
                raise ConfigError("is one act; railyard at takes several", key=words[0])
            acts = parse([f"0s {' '.join(words)}"])
            self._check_acts(acts)
        except ConfigError as error:
            if " must be: " in error.message:
                raise ConfigError(f"usage: railyard {USAGE[words[0]]}") from None
            raise ConfigError(error.message.replace("the act '0s ", "'")) from None
        before = self.circuits()
        for act in acts:
            self._do(act)
        (target,), verb = {act.target for act in acts}, words[0]
        ends = [] if verb == "set" else [end for end in self.net.live.place(target).ends if end.node.name in before]
        if verb in ("fail", "restore"):
            down = set() if verb == "fail" else self.net.live.down()  # what another failure keeps down
            self._wait_seen([end for end in ends if end not in down], failed=verb == "fail")
        after, lines = self.follow(force=True), list[str]()
        for name in dict.fromkeys(end.node.name for end in ends):
            gone = [pair for pair in before[name] if pair not in after[name]] if verb == "fail" else []
            lines.append(f"{name}: {circuits_text(after[name])}" + (f"; down: {circuits_text(gone)}" if gone else ""))
        return "\n".join(lines)

    def _wait_seen(self, ends: Sequence[RecordedIntf], *, failed: bool) -> None:
        """Wait until the switches have told the controller that their ports ``ends`` failed, or work again."""
        limit = time.monotonic() + _SEEN_S
        while time.monotonic() < limit:
            states = {switch["name"]: switch.get("ports", {}) for switch in self._switches()}
            if all((states[end.node.name][str(end.node.ports[end])] == "failed") == failed for end in ends):
                return
            time.sleep(_AGAIN_S)

    def _check_acts(self, acts: Sequence[TimedAct]) -> None:
        if self.plan is not None:
            check(acts, self.plan)
        if self.wired is None and any(act.verb in ("connect", "disconnect") for act in acts):
            raise ConfigError("this lab has no optical switch that Railyard's controller wires, so no circuits")

    def _do(self, act: TimedAct) -> None:
        """Do an act, also where the controller has to; the error of one that was refused."""
        if self.session is None:
            change_links(self.net, act)
            return
        refused: list[str] = []
        acts = FabricActs(self.session, lambda _, why: refused.append(why))
        acts.do(act)
        for client in list(acts.unanswered):
            acts.take_answer(client)
        if refused:
            raise ControlError(refused[0])

    def _timed(self, act: TimedAct, at: float) -> None:
        late_ms = (time.monotonic() - at) * 1e3
        try:
            self._do(act)
            self.done.append(f"{act}, {late_ms:.1f} ms late")
            if act.verb != "set":
                self.follow(force=True)
        except RailyardError as error:
            self.done.append(f"{act}: refused: {error}")

    def _switches(self) -> list[dict[str, Any]]:
        """The switches as Railyard's controller has them; none without it."""
        return [] if self.wired is None else list(self.wired.call("circuits")["switches"])

    def _check_host(self, name: str) -> None:
        known = [host.name for host in self.net.hosts]
        if name not in known:
            raise ConfigError(
                f"there is no host {name}{nearest(name, known) or f'; there are {known[0]} to {known[-1]}'}"
            )


def status_text(facts: Mapping[str, Any], plan: FabricPlan | None) -> str:
    """A lab in lines of 80 columns; of a fabric without a ``plan`` each host with its addresses."""
    lines = [
        f"{facts['name']}: {facts['topology']}, controller {facts['controller']}, datapath {facts['datapath']}, up "
        f"{facts['up_s']:g} s"
    ]
    if facts["trouble"]:
        lines.append(f"TROUBLE: {facts['trouble']}")
    if facts["failed"]:
        lines.append(f"failed: {' '.join(facts['failed'])}")
    if plan is not None:
        ours = facts["controller"] not in ("remote", NO_CONTROLLER)
        lines += fabric_lines(plan, facts["circuits"] if ours else None)
    else:
        addresses = {host: [port["ip"] for port in ports if port["ip"]] for host, ports in facts["hosts"].items()}
        lines += [f"{host}: {' '.join(own)}" for host, own in addresses.items()]
    return "\n".join(shorten(line, _COLUMNS, placeholder=" ...") for line in [*lines, *facts["timetables"]])


def _value(text: str) -> Any:
    return {"true": True, "false": False}.get(text.lower(), makeNumeric(text))


def _circuits(switches: Iterable[Mapping[str, Any]]) -> dict[str, list[list[int]]]:
    return {switch["name"]: switch["circuits"] for switch in switches if switch["kind"] == "ocs"}


def _failed_ports(switches: Iterable[Mapping[str, Any]]) -> list[str]:
    """The ports that have failed by word to the controller, such as ``rail0:3``."""
    ports = ((switch["name"], switch.get("ports", {})) for switch in switches)
    return [f"{name}:{port}" for name, states in ports for port, state in states.items() if state == "failed"]


def circuits_text(pairs: Sequence[Sequence[int]]) -> str:
    return " ".join(f"{a}-{b}" for a, b in pairs) or "no circuit"
