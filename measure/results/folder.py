"""The folder that a run writes: new or empty, and locked until the process of the run ends, however it ends."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from measure.results.manifest import MARK
from railyard.errors import ConfigError
from railyard.limits import check_room
from railyard.ownership import invoker, make_folder, make_new_folder, naming, reached, remove_folders
from railyard.reading import read_bytes

MANIFEST = "manifest.json"
MOST_BYTES = 256 << 20
"""The largest manifest or summary that is read."""
_BUSY = (errno.EWOULDBLOCK, errno.EACCES)


def manifest_of(folder: Path) -> dict[str, Any] | None:
    """The manifest of a Railyard results folder; None for any other folder."""
    try:
        found = json.loads(read_bytes(folder / MANIFEST, MOST_BYTES, "the manifest of a run", pipes=False))
    except (ConfigError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and MARK in found else None


class FolderLock:
    """The lock of a run on its results folder; the kernel frees it when the process ends.

    What is removed by it is in the folder that was locked, also if another one has its path by now.
    """

    def __init__(self, fd: int, made: list[Path]) -> None:
        self._fd = fd
        self._made = made

    @staticmethod
    def claim(folder: Path) -> FolderLock:
        """Make ``folder``, or take an empty one, and lock it.

        Raises ``ConfigError`` (key ``out``) for a folder that is not empty, in use or, under sudo, of a third user, for
        a file, and for a place where no folder can be made.
        """
        check_folder(folder)
        lock = FolderLock(-1, [])
        try:
            check_room(folder)
            lock._made = make_folder(folder.resolve())
            lock._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            check_folder(folder, locked=True)
            _check_owner(folder, os.fstat(lock._fd).st_uid)
        except OSError as error:
            lock.abandon()
            if error.errno in _BUSY and is_locked(folder):
                raise ConfigError(_in_use(folder), key="out") from None
            raise not_writable(folder, error) from None
        except ConfigError:
            lock.abandon()
            raise
        return lock

    @staticmethod
    def take(folder: Path, *, shared: bool = False) -> FolderLock:
        """Lock a folder that exists, whatever it holds; with ``shared`` beside others who do so.

        Raises ``ConfigError`` (key ``out``) for a folder that is in use, that cannot be read or, under sudo, that is of
        a third user.
        """
        lock = FolderLock(-1, [])
        try:
            lock._fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(lock._fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            _check_owner(folder, os.fstat(lock._fd).st_uid)
        except OSError as error:
            lock.free()
            if error.errno in _BUSY:
                raise ConfigError(f"{folder} is in use by another process; wait for its end", key="out") from None
            raise not_writable(folder, error) from None
        except ConfigError:
            lock.free()
            raise
        return lock

    def names(self) -> list[str]:
        return os.listdir(self._fd)

    def remove_file(self, name: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def remove_rest(self, path: Path, kept: Collection[str]) -> None:
        """Remove all but what is ``kept`` in a folder in the folder, by its path from here, as far as possible."""
        with suppress(OSError), reached(path, self._fd) as place:
            for name in set(os.listdir(f"/proc/self/fd/{place}")) - set(kept):
                try:
                    os.unlink(name, dir_fd=place)
                except IsADirectoryError:
                    # by the descriptor's name: rmtree has no dir_fd before Python 3.11
                    shutil.rmtree(f"/proc/self/fd/{place}/{name}", ignore_errors=True)

    def abandon(self) -> None:
        """Free the folder, and remove the folders that ``claim`` made if they are empty."""
        self.free()
        remove_folders(self._made)

    def free(self) -> None:
        """Free the folder; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def is_locked(folder: Path) -> bool:
    """Whether a run that is under way holds the lock of ``folder``."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _BUSY
    finally:
        os.close(fd)
    return False


def check_folder(folder: Path, *, locked: bool = False) -> None:
    """Raise ``ConfigError`` (key ``out``) for a folder that a run may not take: one with content, and a file.

    ``locked``: the caller has the lock of the folder.
    """
    try:
        if not folder.exists() or not any(folder.iterdir()):
            return
    except NotADirectoryError:
        raise ConfigError(f"{folder} is a file; name a folder", key="out") from None
    except OSError as error:
        raise ConfigError(f"{folder} cannot be read ({error.strerror}); name another folder", key="out") from None
    manifest = manifest_of(folder)
    if manifest is None:
        said = f"{folder} is not empty and is not a Railyard results folder; name a new folder or an empty one"
    elif not locked and is_locked(folder):
        said = _in_use(folder)
    else:
        said = f"{folder} holds the results of a run of {written(manifest)}; name a new folder"
    raise ConfigError(said, key="out")


def written(manifest: dict[str, Any]) -> str:
    text = str(manifest.get("written", ""))
    return text[:16].replace("T", " ") or "an unknown date"


def new_folder(parent: Path, name: str) -> Path:
    """Make a new folder in ``parent``: ``name`` with date and time, and with a number if another run made that."""
    stem = f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    number, path = 1, parent / stem
    try:
        place = parent.resolve()
        make_folder(place)
        with reached(place) as at:
            while True:
                try:
                    with naming(path):
                        make_new_folder(path.name, at)
                except FileExistsError:
                    number += 1
                    path = parent / f"{stem}-{number}"
                    continue
                return path
    except OSError as error:
        raise not_writable(path, error) from None


def not_writable(folder: Path, error: OSError) -> ConfigError:
    """The error for a results folder that cannot be made or written."""
    place = error.filename or folder
    return ConfigError(f"{place} cannot be written ({error.strerror}); name another folder", key="out")


def _check_owner(folder: Path, owner: int) -> None:
    """Raise ``ConfigError`` (key ``out``) for the folder of a user who is neither root nor the caller of sudo.

    That user could put links in it, by which root would write elsewhere.
    """
    caller = invoker()
    if caller is not None and owner not in (0, caller[0]):
        raise ConfigError(f"{folder} belongs to user {owner}; name a folder of your own", key="out")


def _in_use(folder: Path) -> str:
    pid = (manifest_of(folder) or {}).get("process")
    return f"{folder} is in use by a run{f' (process {pid})' if pid else ''}; name another"
