"""A worker of Dask as a process of its own: a child of the sweep, here or at the other end of ``ssh``.

It is ready once it has joined. At the end of the sweep it stops what it runs and ends. All its files are in its private
folder, which it removes.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile

from commands.sweep.workers.dask_cluster import CONFIGURATION, RESOURCE, need_dask, quiet, with_keys
from commands.sweep.workers.worker_task import stop_tasks
from railyard.process.connection import FOLDER_VARIABLE
from railyard.process.parent import Parent

JOIN_S = 20.0
SSH_VARIABLE = "SSH_CONNECTION"
"""Environment variable of OpenSSH: address and port of the client, then of this machine."""


def main() -> None:
    """Serve until the sweep ends or the scheduler is gone."""
    parent = Parent()
    tempfile.tempdir = folder = os.environ[FOLDER_VARIABLE]
    asyncio.run(_serve(parent, folder))
    shutil.rmtree(folder, ignore_errors=True)  # whoever made it may have been killed
    sys.stderr.flush()
    os._exit(0)  # a thread of Dask may wait for a point of root, which ends by itself


async def _serve(parent: Parent, folder: str) -> None:
    settings = parent.settings
    need_dask()
    import dask
    from distributed import Worker

    dask.config.set(CONFIGURATION)
    here, there = addresses(os.environ.get(SSH_VARIABLE, ""))
    worker = quiet(Worker)(
        settings["scheduler"].format(host=there),
        host=here,
        name=settings["name"],
        nthreads=1,
        memory_limit=0,
        resources={RESOURCE: 1},
        security=with_keys(settings["keys"]),
        protocol="tls://",
        local_directory=folder,
        death_timeout=JOIN_S,
    )
    ended = asyncio.Event()
    parent.on_stop(ended.set)
    async with worker:
        parent.ready()
        await asyncio.wait(
            [asyncio.ensure_future(ended.wait()), asyncio.ensure_future(worker.finished())],
            return_when=asyncio.FIRST_COMPLETED,
        )
        await asyncio.to_thread(stop_tasks)


def addresses(connection: str) -> tuple[str, str]:
    """The address to listen on, and that of the scheduler, by which ``ssh`` connected; loopback without ``ssh``."""
    words = connection.split()
    if len(words) != 4:
        return "127.0.0.1", "127.0.0.1"
    there, _, here, _ = (f"[{word}]" if ":" in word else word for word in words)
    return here, there
