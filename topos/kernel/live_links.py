"""Changes of the links of a net that is up: rates, delays, losses, failures; and the names by which links are meant.

A failure takes the interfaces at both ends of its links down. What has failed twice, as a port and as a link of its
switch, is up again when both are restored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

from railyard.errors import ConfigError, nearest, shortened
from topos import options
from topos.kernel import namespaces, tuning, wiring
from topos.kernel.link_delays import LinkDelays
from topos.kernel.links import Part, RecordedIntf, RecordedLink
from topos.kernel.netlink import Netlink, NetlinkRequest, link_up
from topos.kernel.nodes import RailSwitch
from topos.kernel.transport import usable_transport
from topos.options import number


@dataclass(frozen=True)
class NamedLinks:
    """The links that a name means, by the interfaces at both ends of each.

    ``key`` is the same for all names of the same links; ``node``: these are all links of one host or switch.
    """

    name: str
    key: str
    ends: tuple[RecordedIntf, ...]
    node: bool = False

    @property
    def links(self) -> list[RecordedLink]:
        links: list[Any] = [end.link for end in self.ends]
        return list(dict.fromkeys(links))


class LinkNames:
    """The names of a net's hosts (``g3``), switches (``rail0``), their ports (``rail0:3``), and links: those between
    two nodes (``g0-rail0``) and the one of an interface (``g0-r1``). Pure.
    """

    def __init__(self, nodes: Mapping[str, Any], switches: Sequence[RailSwitch]) -> None:
        self._nodes, self._switches = nodes, switches
        self._ends: dict[str, list[RecordedIntf]] = {}
        for end in (end for node in nodes.values() for end in node.intfList()):
            node = end.node
            port = [f"{node.name}:{node.ports[end]}"] if isinstance(node, RailSwitch) else []
            for name in (end.name, f"{node.name}-{wiring.far_end(end).node.name}", *port):
                self._ends.setdefault(name, []).append(end)

    def place(self, name: str) -> NamedLinks:
        """The place ``name``; ``ConfigError`` with the one most like it if there is none.

        The links of a host are also those of its node in a torus.
        """
        if name in self._nodes:
            node = self._nodes[name]
            own = node.intfList()
            far = map(wiring.far_end, own) if isinstance(node, RailSwitch) else wiring.own_ends(node, self._switches)
            return NamedLinks(name, name, tuple(dict.fromkeys([*own, *far])), node=True)
        if name not in self._ends:
            there = nearest(name, [*self._nodes, *self._ends]) or "; name one such as g0, rail0, rail0:3 or g0-rail0"
            raise ConfigError(f"there is no node, port or link {shortened(name)}{there}")
        both = tuple(dict.fromkeys(chain.from_iterable((end, wiring.far_end(end)) for end in self._ends[name])))
        return NamedLinks(name, " ".join(sorted(end.name for end in both)), both)


class LiveLinks:
    """The links of a net that is up; ``namespaces_of_hosts`` are descriptors by name, switches are in the yard.

    To be used by one thread at a time. Of a net with several parts it changes what is in this one.
    """

    def __init__(
        self,
        nodes: Mapping[str, Any],
        switches: Sequence[RailSwitch],
        part: Part,
        namespaces_of_hosts: Mapping[str, int],
        yard_fd: int,
        delays: LinkDelays,
        when_up: Callable[[Any], None],
    ) -> None:
        self.place = LinkNames(nodes, switches).place
        self._nodes, self._switches, self._part = nodes, switches, part
        self._fds, self._yard_fd, self._delays = namespaces_of_hosts, yard_fd, delays
        self._when_up = when_up
        self._failed: dict[str, NamedLinks] = {}

    def link(self, name: str) -> RecordedLink:
        """The only link of a name; ``ConfigError`` where it has several."""
        links = self.place(name).links
        if len(links) > 1:
            raise ConfigError(
                f"{name} has {len(links)} links; name one by its interface, such as {links[0].intf1.name}"
            )
        return links[0]

    @property
    def failed(self) -> list[str]:
        """The names of what has failed, as they were given."""
        return [place.name for place in self._failed.values()]

    def has_failed(self, name: str) -> bool:
        return self.place(name).key in self._failed

    def fail(self, name: str) -> None:
        """Take all links of ``name`` down; ``ConfigError`` if they were taken down as the same links."""
        place = self.place(name)
        if place.key in self._failed:
            raise ConfigError(f"{name} has failed already, as {self._failed[place.key].name}; restore it first")
        self._failed[place.key] = place
        ends = self._own(place.ends)
        self._delays.cut(ends)
        for fd, those in self._by_namespace(ends):
            self._run(fd, wiring.cut_requests(those))

    def restore(self, name: str) -> None:
        """Undo ``fail``, but for links that have failed by another name too; ``ConfigError`` if it has not failed."""
        if not self.has_failed(name):
            raise ConfigError(f"{name} has not failed; restore what has: {', '.join(self.failed) or 'nothing has'}")
        self.bring_up(name)

    def bring_up(self, name: str) -> None:
        """``restore``, also for what has not failed."""
        place = self.place(name)
        self._failed.pop(place.key, None)
        down = self.down()
        ends = [end for end in self._own(place.ends) if end not in down]
        for host in _hosts(ends):
            self._run(self._fds[host.name], wiring.mend_requests(host, ends, self._switches))
            self._when_up(host)
        self._bring_up_switched(ends)
        self._delays.mend(ends, down)

    def down(self) -> set[RecordedIntf]:
        return {end for place in self._failed.values() for end in place.ends}

    def _bring_up_switched(self, ends: Iterable[RecordedIntf]) -> None:
        """Bring those of ``ends`` up that are at switches, for single frames where they lose some."""
        switched = [end for end in ends if isinstance(end.node, RailSwitch)]
        self._run(self._yard_fd, (link_up(end.index, end.name, single=end.way.loss_percent > 0) for end in switched))

    def set(
        self,
        name: str,
        rate_mbps: float | None = None,
        delay_ms: float | None = None,
        loss_percent: float | None = None,
    ) -> None:
        """Change the links of ``name`` in both directions; queues keep their packets. None leaves a value as it is.

        ``ConfigError``, and nothing is changed, for bad values, for a node, and for a delay or a loss of a link that
        cannot get one (``LinkDelays.change``).
        """
        place = self.place(name)
        if place.node:
            raise ConfigError(f"{name} is a node; name a link of it, such as {place.ends[0].name}")
        wanted = _parameters(rate_mbps, delay_ms, loss_percent)
        ends = self._own(place.ends)
        before = {end: (end.rate_mbps is not None, end.rto_min_ms) for end in ends}
        with _recorded(place.ends, wanted):
            self._delays.change(ends)
        if rate_mbps is not None:
            for fd, those in self._by_namespace(ends):
                self._run(fd, chain.from_iterable(wiring.shaping(end, again=before[end][0]) for end in those))
        down = self.down()
        patient = [end for end in ends if end.rto_min_ms != before[end][1]]
        for host in _hosts(ends):
            fd, up = self._fds[host.name], [end for end in host.intfList() if end in ends and end not in down]
            with namespaces.inside(fd):
                namespaces.write_sysctls(tuning.output_limit(wiring.shaped_ports(host)))
            self._run(fd, wiring.retuning(host, up, self._switches, patient))
        if loss_percent is not None:
            self._bring_up_switched(end for end in ends if end not in down)

    def set_transport(self, host: str, name: str) -> None:
        """Let new connections of a host use congestion control ``name``.

        ``ConfigError`` for an unknown host, and as ``usable_transport`` raises it.
        """
        if host not in self._fds:
            there = nearest(host, self._fds) or f"; hosts are {', '.join(list(self._fds)[:4])}, ..."
            raise ConfigError(f"there is no host {shortened(host)}{there}")
        node, down = self._nodes[host], self.down()
        node.transport = usable_transport(name)
        self._run(self._fds[host], wiring.routes(node, [end for end in node.intfList() if end not in down]))

    def _own(self, ends: Iterable[RecordedIntf]) -> list[RecordedIntf]:
        return [end for end in ends if self._part.has(end.node.name)]

    def _by_namespace(self, ends: Iterable[RecordedIntf]) -> Iterator[tuple[int, list[RecordedIntf]]]:
        found: dict[int, list[RecordedIntf]] = {}
        for end in ends:
            found.setdefault(self._fds.get(end.node.name, self._yard_fd), []).append(end)
        return iter(found.items())

    @staticmethod
    def _run(netns_fd: int, requests: Iterable[NetlinkRequest]) -> None:
        with Netlink(netns_fd) as kernel:
            kernel.run(requests)


def _hosts(ends: Iterable[RecordedIntf]) -> list[Any]:
    return list(dict.fromkeys(end.node for end in ends if not isinstance(end.node, RailSwitch)))


def _parameters(rate_mbps: float | None, delay_ms: float | None, loss_percent: float | None) -> dict[str, Any]:
    """Mininet's parameters of a link, for the values that are given."""
    if rate_mbps is None and delay_ms is None and loss_percent is None:
        raise ConfigError("give a link something to change: rate, delay or loss")
    wanted: dict[str, Any] = {}
    if rate_mbps is not None:
        wanted["bw"] = options.rate("rate", rate_mbps)
    if delay_ms is not None:
        wanted["delay"] = f"{number('delay', delay_ms, 0, options.MOST_DELAY_MS, 'ms'):.9g}ms"
    if loss_percent is not None:
        wanted["loss"] = number("loss", loss_percent, 0, 100, "percent")
    return wanted


@contextmanager
def _recorded(ends: Sequence[RecordedIntf], wanted: Mapping[str, Any]) -> Iterator[None]:
    """Record the parameters ``wanted`` of interfaces, and within the block take them back on an error."""
    before = [(end, dict(end.params), end.earlier_mbps) for end in ends]
    for end in ends:
        had = [*end.earlier_mbps, *([] if end.rate_mbps is None else [end.rate_mbps])]
        end.earlier_mbps = (min(had), max(had)) if had else ()
        end.params.update(wanted)
    try:
        yield
    except BaseException:
        for end, params, earlier in before:
            end.params, end.earlier_mbps = params, earlier
        raise
