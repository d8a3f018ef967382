"""The command ``railyard``, and ``python -m railyard``: it finds Railyard's other packages and begins with them.

They have general names (``topos``, ``experiments``, ...), as a folder of a user's may. So they are on the path of
Railyard's own processes only, and first there; the working directory is not searched.
"""

import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # the working directory, or the folder of this file, which Python searches first

from importlib import import_module

from railyard.checkout import ROOT


def main(*words: str) -> int:
    """Run the ``railyard`` command ``words`` with the arguments of this process; returns the exit status."""
    sys.path.insert(0, str(ROOT))
    status: int = import_module("commands.main").main([*words, *sys.argv[1:]])
    return status


def osken_manager() -> int:
    return main("manager", "os-ken")


def ryu_manager() -> int:
    return main("manager", "ryu")


if __name__ == "__main__":
    sys.exit(main())
