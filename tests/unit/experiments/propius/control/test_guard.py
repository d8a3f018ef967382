from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from edge.jobs import BEST, edge_job, open_job

from experiments.propius.control.managers import ClientManager
from experiments.propius.control.policies import EdgePolicy, OpenJob, Scheduler, rehearse
from experiments.propius.data.jobs import BASIC, HIGHEST, Attributes
from railyard.errors import ConfigError

Order = Callable[[Sequence[OpenJob]], Sequence[OpenJob]]


def policy_that(order: Order, made: Any = None) -> EdgePolicy:
    class Wrong(EdgePolicy):
        def plan(self, jobs: Sequence[OpenJob], clients: Sequence[Attributes], now: float) -> Any:
            return made

        def order(self, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> Sequence[OpenJob]:
            return order(jobs)

    return Wrong()


FORBIDDEN = open_job(1, bounds=HIGHEST)

WRONG: list[tuple[Order, str]] = [
    (lambda jobs: [*jobs, *jobs], "policies: Wrong offers job job-0 twice to one client, which would bind it twice"),
    (lambda jobs: [FORBIDDEN], "policies: Wrong offers job job-1 to a client whose attributes do not meet"),
    (lambda jobs: [open_job(2)], "policies: Wrong offers job job-2 to a client though the job takes no clients now"),
]


@pytest.mark.parametrize(("order", "sentence"), WRONG)
def test_a_policy_that_offers_what_it_may_not_is_refused_at_the_check_in(order: Order, sentence: str) -> None:
    manager = ClientManager(0, 1, policy_that(order))
    manager.update([open_job(0), FORBIDDEN, open_job(2, open=False)], None, 0.0)
    with pytest.raises(ConfigError, match=sentence):
        manager.check_in(None, BASIC, 0.0)


def test_a_rehearsal_refuses_a_policy_before_the_run() -> None:
    with pytest.raises(ConfigError, match="would bind it twice; order each job once"):
        rehearse(policy_that(lambda jobs: [*jobs, *jobs]), [edge_job()], [BEST])
    with pytest.raises(ConfigError, match=r"Wrong failed in line \d+ of test_guard\.py: IndexError: list index"):
        rehearse(policy_that(lambda jobs: [jobs[7]]), [edge_job()], [BEST])
    rehearse(policy_that(lambda jobs: jobs), [edge_job()], [BEST])


def test_a_policy_that_would_plan_without_a_pause_is_refused() -> None:
    policy = policy_that(lambda jobs: jobs)
    type(policy).refresh_s = 0.0
    with pytest.raises(ConfigError, match=r"policies: the refresh_s of Wrong is 0\.0; make it above 0"):
        rehearse(policy, [edge_job()], [BEST])


@pytest.mark.parametrize("plan", [{1, 2}, float("nan"), open_job(0), {(1, 2): 3}])
def test_a_plan_is_plain_json_data(plan: Any) -> None:
    with pytest.raises(ConfigError, match="policies: the plan of Wrong is not plain JSON data"):
        Scheduler(policy_that(lambda jobs: jobs, plan)).plan([], [], 0.0)
