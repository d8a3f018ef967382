"""How Railyard sets Dask up: nothing beside the points takes processor time, and nothing listens that need not."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from railyard.errors import MachineError

RESOURCE = "machine"
"""Resource of which a worker has one and a point needs one."""
CONFIGURATION: Mapping[str, Any] = {
    "distributed.admin.low-level-log-length": 100,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "60s",
    "distributed.diagnostics.nvml": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.worker-ttl": "60s",
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.rebalance.measure": "managed",
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.profile.enabled": False,
}
"""Configuration of scheduler and workers. The profiler of Dask alone samples every thread of a worker each 10 ms."""
_PARTS = ("ca_file", "client_key", "client_cert", "scheduler_key", "scheduler_cert", "worker_key", "worker_cert")


def need_dask() -> None:
    """Import Dask, whose log is of errors alone; ``MachineError`` where it is not installed, with what installs it."""
    given = logging.getLoggerClass()  # Mininet's writes to the terminal beside every handler
    logging.setLoggerClass(logging.Logger)
    try:
        import distributed.deploy.spec
        import distributed.scheduler
        import distributed.worker  # noqa: F401
    except ImportError as error:
        raise MachineError(
            f"a sweep on several workers needs the extra cluster ({error}); pip install railyard[cluster]"
        ) from None
    finally:
        logging.setLoggerClass(given)
    logging.getLogger("distributed").setLevel(logging.ERROR)  # what becomes of workers is said in sentences of our own


def quiet(server: Any) -> Any:
    """The class ``server`` of Dask (scheduler or worker) without its HTTP server, which listens even if it is empty."""

    class Quiet(server):  # type: ignore[misc]  # Dask has no class before it is imported
        def start_http_server(self, *_: Any, **__: Any) -> None:
            """Start nothing."""

    return Quiet


def own_keys() -> Mapping[str, str]:
    """New keys and certificates for one cluster: only who has them can connect to its parts."""
    from distributed import Security

    made = Security.temporary()
    return {f"tls_{part}": getattr(made, f"tls_{part}") for part in _PARTS}


def with_keys(keys: Mapping[str, str]) -> Any:
    """The security settings of a part of a cluster with these keys: TLS, and nothing without."""
    from distributed import Security

    return Security(require_encryption=True, **keys)
