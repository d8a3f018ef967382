"""What the connections of one rank have to do, so that its loop looks at no others."""

from __future__ import annotations

from typing import Generic, TypeVar

C = TypeVar("C")


class Activity(Generic[C]):
    """The connections of one rank that have messages to send, and those whose awaited ``events`` have changed."""

    def __init__(self) -> None:
        self.sending: dict[C, None] = {}
        self.changed: dict[C, None] = {}
