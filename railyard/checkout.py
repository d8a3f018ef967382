"""The location of the project's own files, independent of the working directory."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder that holds ``railyard/``, ``topos/`` and the other packages."""
