"""Edge jobs and clients for tests: small, with every value that a test does not care about filled in."""

from __future__ import annotations

from experiments.propius.control.policies import OpenJob
from experiments.propius.data.clients import ClientProfile
from experiments.propius.data.jobs import BASIC, Attributes, EdgeJob

BEST = Attributes(20, 20, 9999, 20)


def edge_job(name: str = "a", demand: int = 2, bounds: Attributes = BASIC, **others: float) -> EdgeJob:
    """A job of 3 rounds that any private size may serve."""
    return EdgeJob(name, demand, bounds, others.pop("private_bound", 0.0), int(others.pop("rounds", 3)), **others)


def open_job(
    number: int,
    demand: int = 2,
    bounds: Attributes = BASIC,
    *,
    registered_s: float | None = None,
    scheduling_s: float = 0.0,
    open: bool = True,
    requested_s: float = 0.0,
) -> OpenJob:
    """A job in its first round that registered at second ``number``, unless ``registered_s`` says otherwise."""
    registered = float(number) if registered_s is None else registered_s
    job = edge_job(f"job-{number}", demand, bounds)
    return OpenJob(number, job, registered, 0, demand, 0, 0, scheduling_s, open, requested_s)


def client(
    number: int = 0,
    attributes: Attributes = BEST,
    private_size: float = 200.0,
    *,
    speed_ms: float = 50.0,
    rate_mbps: float = 10.0,
) -> ClientProfile:
    """A client in region 0."""
    return ClientProfile(number, 0, attributes, private_size, speed_ms, rate_mbps)
