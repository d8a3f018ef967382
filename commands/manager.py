"""``osken-manager`` and ``ryu-manager``: OpenFlow apps of one's own, as files or modules, with the framework's options.

os-ken 4 comes without the program, and that of Ryu 4.34 does not start with any current eventlet.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from commands.main import main
from controllers.openflow.app import DEFAULT, PROGRAMS, run_apps


def start(arguments: Sequence[str]) -> int:
    """Run apps under the framework that ``arguments`` name first, until they end."""
    framework, *others = arguments
    if framework in ("--help", "-h"):
        print(f"usage: railyard manager {'|'.join(PROGRAMS)} [OPTIONS] APP...\n\n{__doc__.partition(':')[2].strip()}")
        return 0
    run_apps(framework, others)
    return 0


def osken() -> int:
    return main(["manager", DEFAULT, *sys.argv[1:]])


def ryu() -> int:
    return main(["manager", "ryu", *sys.argv[1:]])
