"""The layers of the project: imports point down only, and modules that decide touch neither clock nor machine."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx
import pytest
from checkout import ROOT

LAYERS = ("railyard", "topos", "workloads", "controllers", "measure", "experiments", "commands", "scripts")
"""Lowest first: a module imports modules of its own layer and of those before it."""

FRAMEWORK = {"ryu", "os_ken", "eventlet"}
FRAMEWORK_MODULE = "controllers.openflow.app"

MACHINE = {
    "mininet",
    "socket",
    "select",
    "selectors",
    "subprocess",
    "threading",
    "time",
    "signal",
    "fcntl",
    "pyroute2",
    "asyncio",
}
"""Top-level packages by which a module reads a clock, waits, or acts on this machine."""

PURE = (
    "controllers.circuits",
    "controllers.engine",
    "controllers.policies",
    "experiments.propius.control.managers",
    "experiments.propius.control.policies",
    "experiments.propius.control.trunk",
    "experiments.propius.data.clients",
    "experiments.propius.data.jobs",
    "experiments.propius.data.messages",
    "experiments.propius.data.servers",
    "experiments.propius.metrics",
    "experiments.propius.model",
    "experiments.propius.verdict",
    "measure.metrics",
    "measure.model",
    "commands.page.view",
    "railyard.protocol",
    "railyard.remote.clock",
    "railyard.remote.ssh_faults",
    "railyard.scale",
    "topos.client_rates",
    "topos.edge_plan",
    "topos.kernel.fastpath.lasting",
    "topos.kernel.fastpath.link_states",
    "topos.kernel.fastpath.openflow",
    "topos.kernel.fastpath.program",
    "topos.kernel.fastpath.statistics",
    "topos.kernel.fastpath.rules",
    "topos.kernel.fastpath.tables",
    "topos.kernel.holding",
    "topos.placement",
    "topos.plan",
    "topos.reach",
    "topos.slices",
    "topos.torus",
    "workloads.check",
    "workloads.collectives",
    "workloads.phases",
    "workloads.program",
    "workloads.rank",
    "workloads.schedule",
    "workloads.training",
)
"""Modules and folders whose time comes in as an argument."""


@cache
def sources() -> dict[str, Path]:
    """Module name -> file, of everything that is not a test."""
    files = [file for layer in LAYERS for file in (ROOT / layer).rglob("*.py")]
    return {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


@cache
def imports(module: str) -> tuple[str, ...]:
    """What ``module`` imports, those for type checking included, as names of modules."""
    return tuple(_imports(module))


def _imports(module: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(sources()[module].read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in sources() else node.module


def within(module: str, place: str) -> bool:
    return module == place or module.startswith(f"{place}.")


@pytest.mark.parametrize("layer", LAYERS)
def test_imports_point_down(layer: str) -> None:
    above = LAYERS[LAYERS.index(layer) + 1 :]
    upward = [
        f"{module} imports {name}"
        for module in sources()
        if within(module, layer)
        for name in imports(module)
        if name.partition(".")[0] in above
    ]
    assert upward == []


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = networkx.DiGraph((module, name) for module in sources() for name in imports(module) if name in sources())
    circles = [sorted(group) for group in networkx.strongly_connected_components(graph) if len(group) > 1]
    assert circles == []


def test_one_module_imports_the_controller_framework() -> None:
    found = {module for module in sources() for name in imports(module) if name.partition(".")[0] in FRAMEWORK}
    assert found == {FRAMEWORK_MODULE}


@pytest.mark.parametrize("place", PURE)
def test_pure_modules_do_not_touch_the_machine(place: str) -> None:
    modules = [module for module in sources() if within(module, place)]
    assert modules, f"{place} is no module of the project"
    acting = [
        f"{module} imports {name}"
        for module in modules
        for name in imports(module)
        if name.partition(".")[0] in MACHINE
    ]
    assert acting == []


def test_topologies_need_what_the_system_has_alone() -> None:
    """``mn --custom`` runs them with the system's Python, which has none of our packages."""
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('pydantic', 'networkx', 'numpy', 'yaml', 'rich'), None))\n"
        "import topos.rails, topos.racks, topos.edge, topos.describe\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
