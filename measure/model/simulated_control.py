"""The control plane of the model: the live engine, with the time that a switch and its controller take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from controllers.engine.actions import Ack, Action, CheckedIn, Darken, Note, Refuse, RegisterRefused, SlotEnds
from controllers.engine.engine import Engine
from controllers.engine.jobs import Job
from controllers.policies.policy import Policy
from railyard.errors import ControlError
from railyard.protocol import SlotWindow
from railyard.timeline import Event
from topos.plan import FabricPlan
from workloads.agent.executor import ReleaseCircuits, RequestCircuits
from workloads.agent.transport.slot_sender import Moved


@dataclass(frozen=True)
class Costs:
    """What this machine adds, in wall-clock seconds.

    ``alpha_s``: a message, from its last byte on the wire until the receiver has it. ``control_s``: request to
    acknowledgement where no circuit changes. ``settle_s``: from a circuit's light to its acknowledgement, and
    ``crowded_s`` more where the switch changed less than twice that before.
    """

    alpha_s: float = 0.0
    control_s: float = 0.0
    settle_s: float = 0.0
    crowded_s: float = 0.0


class SimulatedControl:
    """Requests in, acknowledgements out (``acked``), events noted (``note``).

    ``later(seconds, what)`` is the clock: it calls ``what(now)``. Raises ``ControlError`` where the engine refuses.
    """

    def __init__(
        self,
        plan: FabricPlan,
        costs: Costs,
        later: Callable[[float, Callable[[float], None]], None],
        acked: Callable[[Ack], None],
        note: Callable[[Event], None],
    ) -> None:
        self._engine = Engine(plan)
        self._costs = costs
        self._later = later
        self._acked = acked
        self._note = note
        self._changed_at: dict[str, float] = {}
        """When the circuits of a switch last changed."""
        self.checked_in: dict[tuple[int, str], CheckedIn] = {}

    def register(self, job: Job, policy: Policy) -> None:
        """Take ``job`` in; its starting circuits stand when the clock has run."""
        self._act(self._engine.register(job, policy, 0.0))

    def check_in(self, rank: int, group: str, now: float) -> None:
        """``rank`` is here; ``checked_in`` holds the answers when all members are."""
        self._act(self._engine.check_in(rank, group, now))

    def ask(self, rank: int, message: RequestCircuits | ReleaseCircuits | Moved) -> None:
        """A message of ``rank`` to the controller."""
        group, index, engine = message.group, message.index, self._engine

        def hear(now: float) -> None:
            if isinstance(message, Moved):
                self._act(engine.moved(rank, group, index, message.slot, message.idle, now))
            else:
                self._act(
                    (engine.request if isinstance(message, RequestCircuits) else engine.release)(
                        rank, group, index, now
                    )
                )

        self._later(self._costs.control_s / 2, hear)

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Ack(slot_window=SlotWindow()):
                    self._acked(action)  # what it takes to be told, the port makes up for
                case SlotEnds():
                    self._end_turn(action)
                case Ack():
                    self._later(self._costs.control_s / 2, lambda _, ack=action: self._acked(ack))  # type: ignore[misc]
                case CheckedIn():
                    self.checked_in[action.rank, action.group] = action
                case Darken():
                    self._darken(action)
                case Note():
                    self._note(action.event())
                case Refuse(rank, group, index, reason):
                    raise ControlError(f"rank {rank} was refused request {index} of group {group}: {reason}")
                case RegisterRefused(job, reason):
                    raise ControlError(f"job {job} was refused: {reason}")

    def _end_turn(self, ends: SlotEnds) -> None:
        self._later(max(0.0, ends.at - ends.slot_window.began), lambda now: self._act(self._engine.end_slot(ends, now)))

    def _darken(self, action: Darken) -> None:
        def dark(now: float) -> None:
            self._changed_at[action.switch] = now

        if action.delay_s > 0:  # otherwise there is one change, not two
            self._later(0.0, dark)
        self._later(action.delay_s, lambda now: self._lit(action, now))

    def _lit(self, action: Darken, now: float) -> None:
        """A reconfiguration is over; its acknowledgements wait until the switch surely passes packets."""
        crowded = now - self._changed_at.get(action.switch, -1.0) < 2 * self._costs.crowded_s
        wait = self._costs.settle_s + (self._costs.crowded_s if crowded else 0.0)
        self._changed_at[action.switch] = now
        actions = self._engine.lit(action.reconfiguration_id, now)
        self._act(one for one in actions if not isinstance(one, Ack) or one.slot_window is not None)
        acks = [one for one in actions if isinstance(one, Ack) and one.slot_window is None]
        self._later(wait, lambda _: self._act(acks))
