"""Where the checkout under test is."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
IS_OPEN = all(folder.stat().st_mode & 0o001 for folder in (ROOT, *ROOT.parents))
"""Whether other users may read the checkout and its environment, which they may not in root's home."""
CASES = ROOT / "tests" / "data"
"""Input files of other projects, as they were published; origin and licence of each are in its README.md."""
