#!/usr/bin/env python3
"""Show the contents of a workload file with its traffic and predicted time, or a
collective round by round.

scripts/inspect.py trace/           # Chakra traces: a folder, or one file of it
scripts/inspect.py gpt175b.txt --ranks 16 --compute-unit ns    # a layer file
scripts/inspect.py ring.xml --size 1M --json    # an MSCCL algorithm
scripts/inspect.py smoke            # a workload of the catalog, or a YAML file
scripts/inspect.py --algorithm stragglar --ranks 8 --straggler 2
scripts/inspect.py --algorithm ring --op all_gather --ranks 8 --xml

Layer files are those of ASTRA-sim and AICB. Nothing is started and root is not
needed; times are predictions of the model.
"""

from __future__ import annotations

if __name__ != "inspect":
    import _venv  # noqa: F401 # must be first: restarts the script in the virtual environment

    import sys

    from experiments.show import main

    if __name__ == "__main__":
        sys.exit(main(__doc__ or ""))
else:
    # Imported as "inspect" by a program whose path begins with this folder: load the standard module instead.
    import importlib.machinery as machinery
    import sys
    import sysconfig

    spec = machinery.PathFinder.find_spec("inspect", [sysconfig.get_path("stdlib")])
    assert spec is not None and spec.loader is not None
    module = type(sys)("inspect")
    module.__spec__, module.__file__ = spec, spec.origin
    sys.modules["inspect"] = module
    spec.loader.exec_module(module)
