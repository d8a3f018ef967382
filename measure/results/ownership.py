"""Gives files that root writes under sudo to the user who called sudo."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


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


def hand_over(path: Path, owner: tuple[int, int] | None = None) -> None:
    """Give one file or folder to ``owner`` (default: the caller of sudo), without following symbolic links."""
    owner = owner or invoker()
    if owner is not None:
        os.chown(path, *owner, follow_symlinks=False)


def hand_over_fd(fd: int, owner: tuple[int, int] | None = None) -> None:
    """Give an open file to ``owner`` (default: the caller of sudo)."""
    owner = owner or invoker()
    if owner is not None:
        os.fchown(fd, *owner)


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents; the new ones belong to the caller of sudo."""
    missing = []
    place = path.absolute()
    while not place.exists():
        missing.append(place)
        place = place.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        hand_over(folder)
