#!/usr/bin/env python3
"""What is in a workload file, what would it send, and how long would it take? And: a collective, round by round.

scripts/inspect.py trace/                                    # Chakra traces: a folder, or one of its files
scripts/inspect.py gpt175b.txt --ranks 16 --compute-unit ns  # a layer file of ASTRA-sim or AICB
scripts/inspect.py ring.xml --size 1M --json                 # an MSCCL algorithm
scripts/inspect.py smoke                                     # a workload of the catalog, or a YAML file
scripts/inspect.py --algorithm stragglar --ranks 8 --straggler 2          # rounds, claims, bytes
scripts/inspect.py --algorithm stragglar --ranks 8 --straggler 2 --json   # the same for another program
scripts/inspect.py --algorithm ring --op all_gather --ranks 8 --xml       # the same as MSCCL XML

Nothing is started and nothing needs root. Times are the model's.
"""

from __future__ import annotations

if __name__ != "inspect":
    import _venv  # noqa: F401 # first: it moves this script into the project's virtual environment

    import sys

    from experiments.show import main

    if __name__ == "__main__":
        sys.exit(main(__doc__ or ""))
else:
    # Somebody whose path begins with this folder wants the module of the standard library: hand it over.
    import importlib.machinery as machinery
    import sys
    import sysconfig

    spec = machinery.PathFinder.find_spec("inspect", [sysconfig.get_path("stdlib")])
    assert spec is not None and spec.loader is not None
    module = type(sys)("inspect")
    module.__spec__, module.__file__ = spec, spec.origin
    sys.modules["inspect"] = module
    spec.loader.exec_module(module)
