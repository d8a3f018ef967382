"""Files and folders that root makes under sudo belong to the user who called sudo, from the moment they are made."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Literal, TextIO


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


def make_folder(path: Path) -> list[Path]:
    """Make a folder and its missing parents, which belong to the caller of sudo; returns the folders that it made.

    Folders that exist keep their owner.
    """
    missing = []
    place = path.absolute()
    while not place.exists():
        missing.append(place)
        place = place.parent
    made = []
    for folder in reversed(missing):
        try:
            folder.mkdir()
        except FileExistsError:  # another process was first
            continue
        made.append(folder)
        hand_over(folder)
    return made


def open_text(path: str | Path, mode: Literal["a", "w"], *, buffering: int = -1, links: bool = False) -> TextIO:
    """Open a text file to write; a new one belongs to the caller of sudo, one that exists keeps its owner.

    A symbolic link at ``path`` is followed only with ``links``.
    """
    return open(_opened(path, mode, links), mode, buffering, encoding="utf-8")


def open_binary(path: str | Path, mode: Literal["ab", "wb"], *, buffering: int = -1, links: bool = False) -> BinaryIO:
    """Open a binary file to write, as ``open_text`` does."""
    return open(_opened(path, mode, links), mode, buffering)


def _opened(path: str | Path, mode: str, links: bool) -> int:
    flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_APPEND if mode[0] == "a" else os.O_TRUNC)
    flags |= 0 if links else os.O_NOFOLLOW
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        hand_over(fd)
    except FileExistsError:
        fd = os.open(path, flags | (os.O_CREAT if links else 0), 0o644)
    return fd


@contextmanager
def naming(path: str | Path) -> Iterator[None]:
    """Name ``path`` in an ``OSError`` of the block that names no file, as those of ``write`` do."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise
