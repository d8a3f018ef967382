"""The scheduler: it runs the policy's plan over the clients that the client managers know."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Literal

from experiments.propius.control.policy import EdgePolicy, OpenJob
from experiments.propius.data.attributes import Attributes
from railyard.errors import ConfigError, RailyardError
from railyard.plugin import code_failed

Sees = Literal["first", "all"]


class Scheduler:
    """Plans for a policy. ``sees`` is ``first`` for the authors' scheduler, which reads manager 0 only, or ``all``.

    It keeps no state that a restart would lose but what a policy remembers.
    """

    def __init__(self, policy: EdgePolicy, sees: Sees = "all") -> None:
        self._policy = policy
        self._sees = sees
        self._parts: list[Sequence[Attributes]] = []
        self._clients: Sequence[Attributes] = ()

    def plan(self, jobs: Sequence[OpenJob], clients: Sequence[Sequence[Attributes]], now: float) -> Any:
        """The policy's plan; ``ConfigError`` if it is not JSON data, or if the policy's code raises an error.

        ``jobs`` are all registered jobs. ``clients`` has one sequence for each client manager; where each is the same
        object as before, the policy gets the same object as before, too.
        """
        parts = list(clients[:1] if self._sees == "first" else clients)
        if len(parts) != len(self._parts) or any(new is not old for new, old in zip(parts, self._parts, strict=True)):
            self._parts = parts
            self._clients = parts[0] if len(parts) == 1 else [client for part in parts for client in part]
        try:
            plan = self._policy.plan(jobs, self._clients, now)
        except RailyardError:
            raise
        except Exception as error:
            raise code_failed(type(self._policy).__name__, error, "policies") from error
        try:
            json.dumps(plan, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"the plan of {type(self._policy).__name__} is not plain JSON data ({error}); "
                "use numbers, strings, lists and dictionaries with strings for keys",
                key="policies",
            ) from None
        return plan
