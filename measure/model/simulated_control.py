"""The control plane of the model: the live engine, plus the delays of a switch and its controller."""

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
from workloads.rank.actions import Message
from workloads.rank.executor import RequestCircuits
from workloads.rank.slot_sender import Moved


@dataclass(frozen=True)
class Costs:
    """Delays that this machine adds to an ideal one, in wall-clock seconds.

    - ``alpha_s``: from the last byte of a message on the wire until the receiver has it and goes on;
    - ``control_s``: from a request to its acknowledgement where no circuit changes;
    - ``settle_s``: from the end of a circuit's dark time to its acknowledgement;
    - ``revalidation_s``: added to ``settle_s`` if the switch last changed less than twice this time before.
    """

    alpha_s: float = 0.0
    control_s: float = 0.0
    settle_s: float = 0.0
    revalidation_s: float = 0.0


class SimulatedControl:
    """Passes requests to the engine and executes its actions on the clock of the simulation.

    ``acked`` is called with acknowledgements, ``note`` with events. ``later(seconds, callback)`` is the clock, which
    calls ``callback(now)``. Raises ``ControlError`` if the engine refuses a request.
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
        """Time at which the circuits of a switch last changed, by switch."""
        self.checked_in: dict[tuple[int, str], CheckedIn] = {}

    def register(self, job: Job, policy: Policy) -> None:
        """Register ``job``; its starting circuits are up when the clock has no more events."""
        self._act(self._engine.register(job, policy, 0.0))

    def check_in(self, rank: int, group: str, now: float) -> None:
        """Check ``rank`` in to ``group``; ``checked_in`` holds the answers once all members have checked in."""
        self._act(self._engine.check_in(rank, group, now))

    def send(self, rank: int, message: Message) -> None:
        """Send a message of ``rank`` to the engine, which receives it after half of ``control_s``."""
        group, index, engine = message.group, message.index, self._engine

        def deliver(now: float) -> None:
            if isinstance(message, Moved):
                self._act(engine.moved(rank, group, index, message.slot, message.idle, now))
            else:
                self._act(
                    (engine.request if isinstance(message, RequestCircuits) else engine.release)(
                        rank, group, index, now
                    )
                )

        self._later(self._costs.control_s / 2, deliver)

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Ack(slot_window=SlotWindow()):
                    self._acked(action)  # at once: the slot begins after all members know of it
                case SlotEnds():
                    self._end_slot(action)
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

    def _end_slot(self, ends: SlotEnds) -> None:
        self._later(max(0.0, ends.at - ends.slot_window.began), lambda now: self._act(self._engine.end_slot(ends, now)))

    def _darken(self, action: Darken) -> None:
        def dark(now: float) -> None:
            self._changed_at[action.switch] = now

        if action.delay_s > 0:  # without a delay the circuits change once, not twice
            self._later(0.0, dark)
        self._later(action.delay_s, lambda now: self._reconfigured(action, now))

    def _reconfigured(self, action: Darken, now: float) -> None:
        """End a reconfiguration; acknowledgements of requests follow when the switch reliably passes packets."""
        just_changed = now - self._changed_at.get(action.switch, -1.0) < 2 * self._costs.revalidation_s
        wait = self._costs.settle_s + (self._costs.revalidation_s if just_changed else 0.0)
        self._changed_at[action.switch] = now
        actions = self._engine.reconfigured(action.reconfiguration_id, now)
        self._act(one for one in actions if not isinstance(one, Ack) or one.slot_window is not None)
        acks = [one for one in actions if isinstance(one, Ack) and one.slot_window is None]
        self._later(wait, lambda _: self._act(acks))
