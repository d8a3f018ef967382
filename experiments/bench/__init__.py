"""Benchmarks: what this machine carries, each number beside its limit and, where there is one, the stock tool's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Measurement:
    """One measured number.

    ``baseline`` is what the stock tool reached in the same run, ``ratio`` how many times better ``value`` is,
    ``limit`` what ``value`` (or ``ratio``, as the name says) must reach, ``ok`` whether it did; None where there
    is none.
    """

    name: str
    value: float
    unit: str
    baseline: float | None = None
    ratio: float | None = None
    limit: float | None = None
    ok: bool | None = None
