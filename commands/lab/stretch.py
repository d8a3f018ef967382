"""A stretch of time on a lab: what its links carried while programs of a user ran, and whether that can be trusted."""

from __future__ import annotations

import time
from contextlib import ExitStack
from textwrap import fill

from experiments.point_run import counted
from experiments.session import Session
from measure.metrics.fidelity import stretch_verdict
from railyard.ownership import remove_file
from railyard.timeline import read_events


class Stretch:
    """The stretch ``name`` on the fabric of ``session``, from now until ``end``."""

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
        for check in verdict.checks:
            state = "ok " if check.ok and check.judged else "-  " if check.ok else "NO "
            lines.append(f"  {state} {check.says}")
        return "\n".join(fill(line, 80, subsequent_indent=" " * 6, break_on_hyphens=False) for line in lines)
