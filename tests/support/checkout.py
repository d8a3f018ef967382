"""Where the checkout under test is."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
CASES = ROOT.parent / "shared" / "cases"
"""Input files of other tools that no one in this project wrote; not every checkout has them beside it."""
