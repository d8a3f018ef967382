"""Where the checkout under test is."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
CASES = ROOT / "tests" / "data"
"""Input files of other projects, as they were published; origin and licence of each are in its README.md."""
