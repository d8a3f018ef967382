"""The emulation of a fabric on the Linux kernel: namespaces, links, shaping and a private Open vSwitch per run."""

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any

if "pyroute2" not in sys.modules and (_spec := find_spec("pyroute2")) is not None:
    # Its messages alone are taken here; all that would come with them takes a tenth of a second in each process.
    _package = module_from_spec(_spec)

    def _attribute(name: str) -> Any:
        """What pyroute2 has, for others in this process: a module by itself, anything else with the whole package."""
        if find_spec(f"pyroute2.{name}") is not None:
            raise AttributeError(name)  # so that it is imported
        del _package.__dict__["__getattr__"]
        _package.__spec__.loader.exec_module(_package)  # type: ignore[union-attr]
        return getattr(_package, name)

    _package.__dict__["__getattr__"] = _attribute
    sys.modules["pyroute2"] = _package
