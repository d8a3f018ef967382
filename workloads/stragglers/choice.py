"""The choice between Ring and StragglAR before a collective begins, from the expected delay of the late rank. Pure."""

from __future__ import annotations

from typing import Literal

AUTO = "auto"
"""Name of the algorithm that ``choose`` replaces by one of the two."""


def choose(expected_delay_s: float, critical_delay_s: float) -> Literal["ring", "stragglar"]:
    """StragglAR if the late rank is expected to come later than its break-even with Ring, else Ring.

    ``expected_delay_s`` is the delay after the other ranks (``Detector.gap_s``), ``critical_delay_s`` the break-even
    T_crit of StragglAR (arXiv 2505.23523): infinite where StragglAR never wins. A wrong expectation costs time and no
    result: both are all-reduces whatever the arrivals.

    >>> choose(0.3, 0.2), choose(0.1, 0.2)
    ('stragglar', 'ring')
    """
    return "stragglar" if expected_delay_s > critical_delay_s else "ring"
