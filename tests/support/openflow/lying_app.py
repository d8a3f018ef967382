"""``docs/examples/my_opus_app.py`` under os-ken, which says that circuits stand, and installs none but the first."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "docs" / "examples"))

from my_opus_app import OpusApp  # type: ignore[import-not-found]


class LyingApp(OpusApp):  # type: ignore[misc]
    """Does the first request of each switch, which is for starting circuits, and lies about all others."""

    def change(self, request):  # type: ignore[no-untyped-def]
        """Set up starting circuits only."""
        if request["group"]:
            self.channel.up(request)
        else:
            super().change(request)
