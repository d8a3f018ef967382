"""Files and folders that root makes under sudo belong to the user who called sudo, from the moment they are made."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Literal, TextIO

_REACH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def invoker(environ: Mapping[str, str] | None = None) -> tuple[int, int] | None:
    """(user id, group id) of the caller of sudo; None without sudo or if this process is not root."""
    environ = os.environ if environ is None else environ
    if os.geteuid() != 0:
        return None
    try:
        user, group = int(environ["SUDO_UID"]), int(environ["SUDO_GID"])
    except (KeyError, ValueError):
        return None
    return (user, group) if user > 0 and group >= 0 else None


def hand_over(made: Path | int) -> None:
    """Give what this process has made to the caller of sudo: the path of a folder, or an open descriptor.

    Nothing but a folder is given away by its path, so not a file that another user has put in its place.
    """
    owner = invoker()
    if owner is None:
        return
    if isinstance(made, int):
        os.fchown(made, *owner)
        return
    folder = os.open(made, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchown(folder, *owner)
    finally:
        os.close(folder)


@contextmanager
def reached(folder: str | Path, start: int | None = None) -> Iterator[int]:
    """A descriptor of ``folder`` for ``dir_fd``, reached without following a symbolic link anywhere in its path.

    With ``start``, the descriptor of a folder, the path is a relative one that begins there. A user who owns a folder
    on the way cannot lead root elsewhere by a link. ``NotADirectoryError`` for a link.
    """
    place = os.open("/" if start is None else ".", _REACH, dir_fd=start)
    try:
        for name in Path(folder).absolute().parts[1:] if start is None else Path(folder).parts:
            try:
                below = os.open(name, _REACH, dir_fd=place)
            except OSError as error:
                error.filename = str(folder)
                raise
            os.close(place)
            place = below
        yield place
    finally:
        os.close(place)


def make_folder(path: Path) -> list[Path]:
    """Make a folder and its missing parents, which belong to the caller of sudo; returns the folders that it made.

    Folders that exist keep their owner. No symbolic link is followed where one is missing.
    """
    missing = []
    place = path.absolute()
    while not place.exists():
        missing.append(place)
        place = place.parent
    made = []
    for folder in reversed(missing):
        with suppress(FileExistsError), naming(folder), reached(folder.parent) as parent:  # if another was first
            make_new_folder(folder.name, parent)
            made.append(folder)
    return made


def remove_folders(made: Sequence[Path]) -> None:
    """Remove the folders that ``make_folder`` made, but those that somebody has put something into."""
    for folder in reversed(made):
        with suppress(OSError), reached(folder.parent) as parent:
            os.rmdir(folder.name, dir_fd=parent)


def make_new_folder(name: str, parent: int) -> None:
    os.mkdir(name, dir_fd=parent)
    new = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        hand_over(new)
    finally:
        os.close(new)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder for temporary files, by a path without symbolic links; removed at the end."""
    with TemporaryDirectory(prefix="railyard-") as folder:
        yield Path(folder).resolve()


def remove_file(path: Path) -> None:
    """Remove a file if it exists, without following a symbolic link on the way to it."""
    with suppress(FileNotFoundError), naming(path), reached(path.parent) as folder:
        os.unlink(path.name, dir_fd=folder)


def open_text(path: str | Path, mode: Literal["a", "w"], *, buffering: int = -1, links: bool = False) -> TextIO:
    """Open a text file to write; a new one belongs to the caller of sudo, one that exists keeps its owner.

    Symbolic links, at ``path`` or on the way to it, are followed only with ``links``.
    """
    return open(_opened(path, mode, links), mode, buffering, encoding="utf-8")


def open_binary(
    path: str | Path, mode: Literal["ab", "wb"], *, buffering: int = -1, links: bool = False, permissions: int = 0o644
) -> BinaryIO:
    """Open a binary file to write, as ``open_text`` does; a new one has these ``permissions``."""
    return open(_opened(path, mode, links, permissions), mode, buffering)


def open_new(name: str, folder: int, mode: int = 0o644, *, callers: bool = True) -> int:
    """Make a file in the folder with a descriptor; returns its descriptor.

    It belongs to the caller of sudo, or, if not ``callers``, to root.
    """
    fd = os.open(name, os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, mode, dir_fd=folder)
    if callers:
        hand_over(fd)
    return fd


def replace_file(
    path: Path,
    content: str | bytes | Iterable[bytes],
    *,
    links: bool = False,
    permissions: int | None = None,
    callers: bool = True,
) -> None:
    """Write a file atomically, with its missing folders: it has either its old ``content`` or the new one, in pieces.

    It is a new file (``callers``: as by ``open_new``) with these ``permissions`` whatever the umask (None: those that
    it allows); nothing is left beside it where that fails, as on a full disk. A symbolic link at ``path`` is replaced,
    one on the way to it is followed only with ``links``.
    """
    folder, draft = path.absolute().parent, f".{path.name}.{os.getpid()}"
    if links:
        folder = folder.resolve()
    if isinstance(content, str):
        content = content.encode()
    make_folder(folder)
    with naming(path), reached(folder) as place:
        with suppress(FileNotFoundError):
            os.unlink(draft, dir_fd=place)
        fd = open_new(draft, place, callers=callers)
        try:
            with open(fd, "wb") as out:
                if permissions is not None:
                    os.fchmod(fd, permissions)
                out.writelines([content] if isinstance(content, bytes) else content)
                out.flush()
                os.fsync(fd)
            os.replace(draft, path.name, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=place)
            raise


def _opened(path: str | Path, mode: str, links: bool, permissions: int = 0o644) -> int:
    flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_APPEND if mode[0] == "a" else os.O_TRUNC)
    path = Path(path).absolute()
    if links:
        path = path.parent.resolve() / path.name
    with naming(path), reached(path.parent) as folder:
        try:
            return open_new(path.name, folder, permissions)
        except FileExistsError:
            flags |= os.O_CREAT if links else os.O_NOFOLLOW
            return os.open(path.name, flags, permissions, dir_fd=folder)


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name ``path`` in an ``OSError`` of the block that names no file, or none by its whole path.

    Those of ``write`` name none, those of calls with ``dir_fd`` a name in that folder.
    """
    try:
        yield
    except OSError as error:
        if not (isinstance(error.filename, str) and os.path.isabs(error.filename)):
            error.filename = str(path)
        raise
