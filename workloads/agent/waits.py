"""Waits of an agent: operations blocked on an acknowledgement; and its open phases, for the timeline."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from railyard.errors import ControlError
from workloads.agent.executor import Blocked
from workloads.phases import Phase


class Waits:
    """Logs every wait and every phase that is over with ``note``; times are monotonic seconds."""

    def __init__(self, rank: int, phases: Sequence[Phase], note: Callable[..., Any]) -> None:
        self._rank = rank
        self._phases = phases
        self._note = note
        self._blocked: dict[int, tuple[Blocked, float]] = {}
        self._phase_began: dict[tuple[int, int], float] = {}

    def began(self, blocked: Blocked, now: float) -> None:
        """Begin a wait of an operation for the acknowledgement of its group."""
        self._blocked[blocked.op.id] = (blocked, now)

    def ended(self, op: int, now: float) -> None:
        """End the wait of operation ``op``, if there was one."""
        waited = self._blocked.pop(op, None)
        if waited is not None:
            self._note_wait(*waited, now)

    def phase_began(self, step: int, phase: int, now: float) -> None:
        """Begin a phase: its first operation is runnable."""
        self._phase_began[step, phase] = now

    def phase_ended(self, step: int, phase: int, now: float) -> None:
        """End a phase: its last operation is done."""
        began = self._phase_began.pop((step, phase))
        self._note("phase", began, now, step=step, phase=phase, dimension=self._phases[phase].dimension)

    def check(self, now: float, timeout_s: float) -> None:
        """Raise ``ControlError`` when an acknowledgement is missing for longer than ``timeout_s``."""
        for blocked, since in self._blocked.values():
            if now - since > timeout_s:
                raise ControlError(
                    f"rank {self._rank} got no acknowledgement of request {blocked.index} of group "
                    f"{blocked.group} within {timeout_s:g} s, and does not send without one"
                )

    def note_unfinished(self, now: float) -> None:
        """Log the waits that have not ended, when the agent stops."""
        for blocked, since in self._blocked.values():
            self._note_wait(blocked, since, now)

    def _note_wait(self, blocked: Blocked, since: float, now: float) -> None:
        self._note(
            "wait",
            since,
            max(now, since),
            step=blocked.step,
            op=blocked.op.id,
            group=blocked.group,
            index=blocked.index,
            phase=blocked.phase,
        )
