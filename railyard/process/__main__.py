"""The start of every child process, ``python -m railyard.process MODULE ...``: runs ``main`` of a module of ours.

``main`` takes the further arguments from ``sys.argv``, and returns the exit status (None: 0).
"""

import sys
from importlib import import_module

module = import_module(sys.argv.pop(1))
sys.argv[0] = str(module.__file__)
sys.exit(module.main())
