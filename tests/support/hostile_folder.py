"""A working directory full of code that must never run: modules named like those of Railyard, of Python and others."""

from __future__ import annotations

from pathlib import Path

_MODULES = (
    *("sitecustomize", "usercustomize", "json", "inspect", "numpy", "mininet", "yaml"),
    *("railyard", "topos", "controllers", "workloads", "measure", "experiments", "_venv"),
)
_PROGRAMS = (
    "mnexec",
    "ip",
    "tc",
    "ovs-vswitchd",
    "ovsdb-server",
    "ovsdb-tool",
    "setpriv",
    "nice",
    "dirname",
    "python3",
)


def hostile_folder(folder: Path) -> Path:
    """Fill ``folder``; returns the file that exists as soon as any of its code has run."""
    trace = folder.parent / "hostile-code-has-run"
    text = f"open({str(trace)!r}, 'a').write(__file__ + '\\n')\n"
    for name in _MODULES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(text)
        (folder / name / "main.py").write_text(text)
        (folder / f"{name}.py").write_text(text)
    for name in _PROGRAMS:
        (folder / name).write_text(f"#!/bin/sh\necho {name} >>'{trace}'\nexit 1\n")
        (folder / name).chmod(0o755)
    return trace
