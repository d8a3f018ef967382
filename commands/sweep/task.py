"""A command line of ``railyard`` as the child of a sweep: it ends with the process that started it."""

from __future__ import annotations

import sys

from commands.main import main
from railyard.child import die_with_parent

if __name__ == "__main__":
    die_with_parent()
    sys.exit(main())
