"""The links of an emulation that delay or lose packets: their namespace, and the relay if the kernel has no netem."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from railyard.errors import MachineError
from topos.kernel import middles, namespaces, tuning
from topos.kernel.delay_relay import DelayRelay
from topos.kernel.links import RecordedIntf, RecordedLink
from topos.kernel.middles import Method, Passage
from topos.kernel.netlink import Netlink, link_down, link_up
from topos.kernel.path_latency import unsupported_reason

Choice = Literal["auto", "netem", "relay"]


def _method(choice: Choice, passages: Sequence[Passage]) -> Method:
    """How to hold packets; ``MachineError`` if that is netem by choice and the kernel has none."""
    if not any(passage.way.delay_s for passage in passages):
        return "none"
    if choice == "relay":
        return "relay"
    reason = unsupported_reason()
    if reason is None:
        return "netem"
    if choice == "netem":
        raise MachineError(f"links cannot be delayed by netem: {reason}; take link_delay=relay")
    return "relay"


class LinkDelays:
    """The delayed and lossy ones of ``links``; ``choice`` is how packets are held (auto: netem if the kernel has it).

    Raises ``ConfigError`` for bad link parameters, and ``MachineError`` where the machine lacks something.
    """

    def __init__(self, links: Sequence[RecordedLink], choice: Choice = "auto") -> None:
        self.choice = choice
        self.passages = middles.passages(links)
        self.method: Method = _method(choice, self.passages)
        self.relay: DelayRelay | None = None
        self.netns_fd: int | None = None
        """Descriptor of the namespace of the middles; None before ``make`` and without such links."""

    def make(self, namespaces_of_hosts: Mapping[str, int], yard_fd: int) -> None:
        """Make the links and start the relay if there is one. The hosts' ends are down."""
        if not self.passages:
            return
        (self.netns_fd,) = namespaces.make(1)
        with namespaces.inside(self.netns_fd):
            namespaces.write_sysctls(tuning.YARD_SYSCTLS)
        with Netlink(self.netns_fd) as kernel:
            kernel.run(middles.pair_requests(self.passages, namespaces_of_hosts, yard_fd))
            kernel.run(middles.forwarding_requests(self.passages, self.method))
        with Netlink(yard_fd) as kernel:
            kernel.run(middles.switch_end_requests(self.passages))
        relayed = [passage.for_relay() for passage in self.passages if passage.relayed(self.method)]
        if relayed:
            self.relay = DelayRelay(self.netns_fd, relayed).start()

    def cut(self, ends: Collection[RecordedIntf]) -> None:
        """Take down the middles of the links of ``ends``, so that the ends on both sides lose their carrier."""
        inner = middles.crossing(self.passages, ends)
        if inner:
            with Netlink(self.netns_fd) as kernel:
                kernel.run(link_down(end.index, end.name) for end in inner)

    def mend(self, ends: Collection[RecordedIntf], still_cut: Collection[RecordedIntf]) -> None:
        inner = middles.crossing(self.passages, ends) - middles.crossing(self.passages, still_cut)
        if inner:
            with Netlink(self.netns_fd) as kernel:
                kernel.run(link_up(end.index, end.name) for end in inner)

    def check(self) -> None:
        if self.relay is not None:
            self.relay.check()

    def report(self) -> dict[str, Any] | None:
        """How late frames were since the last report (``topos.kernel.holding.Lateness.report``); None without relay.

        Raises ``MachineError`` if the relay has ended.
        """
        return None if self.relay is None else self.relay.report()

    @property
    def interfaces(self) -> set[str]:
        return {passage.enters.name for passage in self.passages}

    def close(self) -> None:
        """End the relay and close the namespace, whose interfaces must have been deleted."""
        if self.relay is not None:
            self.relay.close()
        if self.netns_fd is not None:
            os.close(self.netns_fd)
            self.netns_fd = None
