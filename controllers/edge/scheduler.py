"""The scheduler: it runs the policy's plan over the clients that the client managers know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from controllers.edge.policy import EdgePolicy, OpenJob
from workloads.edge.attributes import Attributes

Sees = Literal["first", "all"]


class Scheduler:
    """Plans for a policy. ``sees`` is ``first`` for the authors' scheduler, which reads manager 0 only, or ``all``."""

    def __init__(self, policy: EdgePolicy, sees: Sees = "all") -> None:
        raise NotImplementedError

    def plan(self, jobs: Sequence[OpenJob], clients: Sequence[Sequence[Attributes]], now: float) -> Any:
        """The policy's plan; ``clients`` has one sequence per client manager. ControlError if it is not JSON data."""
        raise NotImplementedError
