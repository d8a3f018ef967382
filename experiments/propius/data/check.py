"""Whether jobs and clients fit together, before a run: one sentence for what could never end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from experiments.propius.data.attributes import Attributes
from experiments.propius.data.job import EdgeJob
from experiments.propius.data.population import ClientProfile
from railyard.errors import ConfigError


def check_run(jobs: Sequence[EdgeJob], clients: Sequence[ClientProfile]) -> None:
    """``ConfigError`` for jobs that ``clients`` could never serve, clients without a rate, and names used twice."""
    if not jobs:
        raise ConfigError("has no job; name one at least", key="jobs")
    if not clients:
        raise ConfigError("must be at least 1", key="clients")
    for name, count in Counter(job.name for job in jobs).items():
        if count > 1:
            raise ConfigError(f"{count} jobs are called {name}; give each a name of its own", key="jobs")
    for client in clients:
        for key, value in (("rate_mbps", client.rate_mbps), ("speed_ms", client.speed_ms)):
            if not value > 0:
                raise ConfigError(f"must be above 0, not {value:g}", key=f"clients.{client.number}.{key}")
    for job in jobs:
        _check_demand(job, clients)


def _check_demand(job: EdgeJob, clients: Sequence[ClientProfile]) -> None:
    key, known = f"{job.name}.demand", len(clients)
    if job.demand > known:
        raise ConfigError(f"a round needs {job.demand} clients, but there are {known}; ask for fewer", key=key)
    public = [client for client in clients if client.attributes.meets(job.bounds)]
    if not public:
        bounds = ", ".join(
            f"{name} >= {least:g} by {_share(index, least, clients):.1%}"
            for index, (name, least) in enumerate(zip(Attributes._fields[:4], job.bounds, strict=False))
        )
        raise ConfigError(f"no client meets all bounds: {bounds}; lower them", key=f"{job.name}.bounds")
    eligible = sum(client.private_size >= job.private_bound for client in public)
    if job.demand > eligible:
        raise ConfigError(
            f"a round needs {job.demand} clients, but {eligible} of {known} may serve it ({len(public) / known:.1%} "
            f"meet the bounds, {eligible / known:.1%} have private data of at least {job.private_bound:g} besides); "
            "ask for fewer or lower the bounds",
            key=key,
        )


def _share(index: int, least: float, clients: Sequence[ClientProfile]) -> float:
    return sum(client.attributes[index] >= least for client in clients) / len(clients)
