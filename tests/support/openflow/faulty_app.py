"""``docs/examples/my_opus_app.py`` under os-ken with a fault, named by ``FAULT`` in the environment.

``lies``: it says that its second circuits stand, and installs none; ``silent``: it answers no request after the first;
``floods``: it then sends lines without an end. The first request of each switch is for starting circuits.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[3] / "docs" / "examples"))

from my_opus_app import OpusApp  # type: ignore[import-not-found]


class FaultyApp(OpusApp):  # type: ignore[misc]
    """Does the first request of each switch, and then has its fault."""

    def change(self, request):  # type: ignore[no-untyped-def]
        """Set up starting circuits only."""
        if not request["group"]:
            super().change(request)
        elif os.environ["FAULT"] == "lies":
            self.channel.up(request)
        while os.environ["FAULT"] == "floods" and request["group"]:
            self.channel.up({"id": 0})
