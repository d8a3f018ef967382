"""A client manager: it knows the clients that checked in with it lately, and offers them jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from controllers.edge.policy import EdgePolicy, OpenJob
from workloads.edge.attributes import Attributes
from workloads.edge.device import Offer

MOST_OFFERS = 20
STORE_S = 1000.0
TEMPORARY_STORE_S = 30.0


class CheckedIn(NamedTuple):
    """The answer to a check-in: the id of the client from now on, and at most 20 offers, best first."""

    client: int
    offers: tuple[Offer, ...]


class ClientManager:
    """One of ``managers`` client managers; ``number`` counts from 0. Ids of clients carry it: id % managers."""

    def __init__(
        self,
        number: int,
        managers: int,
        policy: EdgePolicy,
        *,
        store_s: float = STORE_S,
        temporary_s: float = TEMPORARY_STORE_S,
        first_id: int = 0,
    ) -> None:
        raise NotImplementedError

    def check_in(self, client: int | None, attributes: Attributes, now: float) -> CheckedIn:
        """Note the client and offer it jobs; a client without an id, or with one of another manager, gets a new id."""
        raise NotImplementedError

    def update(self, jobs: Sequence[OpenJob], plan: Any, now: float) -> None:
        """The job manager's open jobs and the scheduler's plan, as of ``now``."""
        raise NotImplementedError

    def known(self, now: float) -> list[Attributes]:
        """The attributes of the clients heard within the store's time, for the scheduler."""
        raise NotImplementedError
