"""Claims about the emulator itself: rates of links, dark times."""

from __future__ import annotations

from experiments.claims.claim import Claim, Tolerance
from experiments.claims.numbers import value, where


def _limited(name: str, row: str, says: str, unit: str, side: str) -> Claim:
    """The claim that a benchmark keeps its limit, which its row has."""
    return Claim(
        name=name,
        system="Emulator",
        says=says,
        run="links",
        rows=where(name=row),
        number=value("value"),
        source="limit",
        expected=value("limit"),
        tolerance=Tolerance(side="least" if side == "least" else "most"),
        unit=unit,
    )


EMULATOR: tuple[Claim, ...] = (
    _limited(
        "links-slowest",
        "links_16x100_slowest",
        "The slowest of 16 links of 100 Mb/s that all send reaches its line rate; the share is shown",
        "",
        "least",
    ),
    *(
        _limited(
            f"dark-{delay}",
            f"dark_{delay}ms_error_median",
            f"A dark time of {delay} ms is as long as configured, seen by packets; the median error is shown",
            "ms",
            "most",
        )
        for delay in (1, 10, 100)
    ),
    _limited(
        "dark-misdelivered",
        "dark_misdelivered",
        "No packet leaves by an old circuit after a move, or by another one",
        "packets",
        "most",
    ),
)
