"""The workers of a sweep: processes of this machine, of others over ``ssh``, or those of a scheduler that runs already.

A scheduler that Railyard starts is part of this process and speaks TLS with keys that nobody else has. Workers that it
starts end with it, whatever becomes of it: they see the end of their standard input.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

from railyard.errors import ConfigError, MachineError, shortened
from railyard.remote.ssh import HERE, Address, RemoteProcess

RESOURCE = "machine"
"""Resource of which a worker has one and a point needs one."""
CONFIGURATION: Mapping[str, Any] = {
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.tick.interval": "1s",
    "distributed.scheduler.worker-ttl": "60s",
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


# ---- workers ---------------------------------------------------------------------------------------------------------


MOST_WORKERS = 256
CONNECT_S = 15.0
_PATIENCE_S = 45.0
"""Seconds that a worker has to stop what it runs: a run takes up to half a minute to take its fabric down."""
_MODULE = "commands.sweep.workers.worker_process"
_ADDRESS = re.compile(r"(?:tcp|tls)://(?:[A-Za-z0-9_.-]{1,253}|\[[0-9A-Fa-f:.]{2,64}\]):[0-9]{1,5}")


class Workers:
    """The workers that a client of Dask reaches, by name; made by the context managers of this module."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def addresses(self) -> Mapping[str, str]:
        """The address of each worker that is connected now, by its name. ``MachineError`` if the scheduler is gone."""
        try:
            running = self._client.status == "running"
            found = self._client.scheduler_info(n_workers=-1)["workers"] if running else None  # -1: of all
        except Exception:  # of many kinds, by what Dask was doing
            found = None
        if found is None:
            raise MachineError("the scheduler does not answer any more; start the sweep again once it does")
        for address, worker in found.items():
            if not worker["resources"].get(RESOURCE):
                raise MachineError(
                    f"the worker {shortened(str(worker['name']))} at {address} has no resource {RESOURCE}, so two "
                    f"points could run there at once; start it with: dask worker ADDRESS --nthreads 1 --no-nanny "
                    f"--resources {RESOURCE}=1"
                )
        return {str(worker["name"]): address for address, worker in found.items()}

    def submit(self, address: str, act: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Let the worker at ``address`` and no other call ``act`` once it has nothing else to do; returns a future."""
        return self._client.submit(
            act, *arguments, workers=[address], resources={RESOURCE: 1}, pure=False, retries=0, **named
        )

    def call_all(self, addresses: Sequence[str], act: Callable[..., Any]) -> None:
        """Call ``act`` on each worker now, also on one that runs a point, and wait for that."""
        self._client.run(act, workers=[*addresses])


Elsewhere = Callable[[], AbstractContextManager[Workers]]
"""A context that makes the workers of a sweep when they are needed."""


def workers_of_options(options: Any) -> Elsewhere | None:
    """The workers that the options of the command line name; None: this process runs all points, one after another.

    ``ConfigError`` for two kinds of workers, and for what names none; ``MachineError`` without Dask.
    """
    given = [name for name in ("workers", "cluster", "scheduler") if getattr(options, name) is not None]
    if len(given) > 1:
        raise ConfigError(f"is not used with --{given[1]}; give one of them", key=f"--{given[0]}")
    if options.calibrate and not given:
        raise ConfigError("is of workers; without them, run: railyard calibrate", key="--calibrate")
    if not given:
        return None
    need_dask()
    if options.workers is not None:
        if options.workers > MOST_WORKERS:
            raise ConfigError(f"must be at most {MOST_WORKERS}, not {options.workers}", key="--workers")
        return partial(local_workers, options.workers)
    if options.cluster is not None:
        return partial(workers_over_ssh, _machines(options.cluster))
    if not _ADDRESS.fullmatch(options.scheduler):
        raise ConfigError(
            f"must be tcp://HOST:PORT or tls://HOST:PORT, not {shortened(ascii(options.scheduler))}", key="--scheduler"
        )
    return partial(workers_of, options.scheduler)


def _machines(given: str) -> list[str]:
    machines = given.split(",")
    for number, machine in enumerate(machines):
        if machine not in HERE:
            Address.of(machine, "--cluster")
        if machine in machines[:number]:
            raise ConfigError(f"{machine} stands there twice; a machine runs one point at a time", key="--cluster")
    return machines


def local_workers(number: int) -> AbstractContextManager[Workers]:
    """``number`` workers, each a process of this machine; everything listens on loopback alone."""
    return _own_workers("127.0.0.1", {f"worker-{each + 1}": HERE[0] for each in range(number)})


def workers_over_ssh(machines: Sequence[str]) -> AbstractContextManager[Workers]:
    """A worker on each of the ``machines`` (``[user@]host[:port]``, or an alias of the configuration of ``ssh``).

    Railyard must be in the same place there as here.
    """
    return _own_workers("", dict(zip(machines, machines, strict=True)))


@contextmanager
def workers_of(address: str) -> Iterator[Workers]:
    """The workers of a scheduler that runs already; TLS as the configuration of Dask says."""
    import dask
    from distributed import Client, Security

    with dask.config.set(CONFIGURATION):
        if address.startswith("tls:") and Security().get_connection_args("client").get("ssl_context") is None:
            raise ConfigError(
                "needs keys: distributed.comm.tls of the configuration of Dask names none (docs/cluster.md)",
                key="--scheduler",
            )
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False, name="railyard-sweep")
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            why = shortened(str(error).partition("\n")[0])
            raise ConfigError(
                f"no scheduler of Dask answers at {shortened(address)} ({why}); start one: dask scheduler",
                key="--scheduler",
            ) from None
        with client:
            yield Workers(client)


@contextmanager
def _own_workers(host: str, machine_of: Mapping[str, str]) -> Iterator[Workers]:
    """Workers by name, each a process on a machine, of a scheduler in this process.

    That listens on ``host`` (empty: on all addresses).
    """
    import dask
    from distributed import Client, Scheduler
    from distributed.deploy.spec import SpecCluster

    keys = own_keys()
    options = {"host": host, "port": 0, "protocol": "tls://", "security": with_keys(keys), "dashboard": False}
    with (
        dask.config.set(CONFIGURATION),
        SpecCluster(
            workers={},
            scheduler={"cls": quiet(Scheduler), "options": options},
            security=with_keys(keys),
            silence_logs=False,
        ) as cluster,
        Client(cluster, set_as_default=False, name="railyard-sweep") as client,
    ):
        shared = {"scheduler": f"tls://{{host}}:{cluster.scheduler_address.rpartition(':')[2]}", "keys": keys}
        with ExitStack() as stack:
            begun = []
            for name, machine in machine_of.items():
                what = name if machine in HERE else f"the worker on {machine}"
                settings = {**shared, "name": name}
                begun.append(RemoteProcess(machine, _MODULE, settings, what=what, root=False, patience_s=_PATIENCE_S))
                stack.callback(begun[-1].close)
                begun[-1].begin()
            for worker in begun:
                worker.ready()
            yield Workers(client)
