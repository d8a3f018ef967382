"""What no policy may do: offer a job twice, one that takes no clients, or one whose bounds the client does not meet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.propius.control.policy import EdgePolicy, OpenJob
from experiments.propius.control.scheduler import Scheduler
from experiments.propius.data.attributes import Attributes
from experiments.propius.data.job import EdgeJob
from railyard.errors import ConfigError, RailyardError
from railyard.plugin import code_failed

MOST_REHEARSED = 500
"""Clients of a rehearsal: more would not show more."""


def checked_order(
    policy: EdgePolicy, client: Attributes, eligible: Sequence[OpenJob], jobs: Sequence[OpenJob], plan: Any
) -> list[OpenJob]:
    """The policy's order for a client; ``ConfigError`` if it breaks a rule.

    ``eligible`` are the open jobs whose bounds the client meets, ``jobs`` all registered jobs.
    """
    if policy.blind:
        return [job for job in _ordered(policy, client, jobs, plan) if client.meets(job.job.bounds)] if jobs else []
    if not eligible:
        return []
    ordered = _ordered(policy, client, eligible, plan)
    allowed = {job.number for job in eligible}
    seen: set[int] = set()
    for job in ordered:
        if job.number in seen:
            raise _refused(policy, job, "twice to one client, which would bind it twice; order each job once")
        if job.number not in allowed:
            known = any(other.number == job.number and other.open for other in jobs)
            why = "whose attributes do not meet the job's bounds" if known else "though the job takes no clients now"
            raise _refused(policy, job, f"to a client {why}; order only the jobs that it is given")
        seen.add(job.number)
    return ordered


def _ordered(policy: EdgePolicy, client: Attributes, jobs: Sequence[OpenJob], plan: Any) -> list[OpenJob]:
    """What the policy answers; ``ConfigError`` if its code raises an error, or answers something else than jobs."""
    try:
        ordered = list(policy.order(client, jobs, plan))
    except RailyardError:
        raise
    except Exception as error:
        raise code_failed(type(policy).__name__, error, "policies") from error
    if not all(isinstance(job, OpenJob) for job in ordered):
        raise ConfigError(
            f"order of {type(policy).__name__} must return jobs of the list that it is given, not {ordered[0]!r}",
            key="policies",
        )
    return ordered


def rehearse(policy: EdgePolicy, jobs: Sequence[EdgeJob], clients: Sequence[Attributes]) -> None:
    """Let ``policy`` plan and order once with all jobs open, before a run; ``ConfigError`` if it breaks a rule.

    Use an instance of its own for this, since a policy may remember what it did.
    """
    opened = [OpenJob(number, job, job.arrival_s, 0, job.selected, 0, 0) for number, job in enumerate(jobs)]
    now = max((job.arrival_s for job in jobs), default=0.0)
    if not policy.refresh_s > 0:
        raise ConfigError(
            f"the refresh_s of {type(policy).__name__} is {policy.refresh_s}; make it above 0", key="policies"
        )
    plan = Scheduler(policy).plan(opened, [clients], now)
    for client in clients[:MOST_REHEARSED]:
        checked_order(policy, client, [job for job in opened if client.meets(job.job.bounds)], opened, plan)


def _refused(policy: EdgePolicy, job: OpenJob, why: str) -> ConfigError:
    return ConfigError(f"{type(policy).__name__} offers job {job.job.name} {why}", key="policies")
