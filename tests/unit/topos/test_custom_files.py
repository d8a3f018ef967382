from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import topos.rails

assert topos.rails.__file__ is not None
FOLDER = Path(topos.rails.__file__).resolve().parent
AS_MN = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path_hooks[:] = [hook for hook in sys.path_hooks if "editable" not in repr(hook)]
sys.path[:] = [entry for entry in sys.path if entry != {root!r}]
try:
    import topos
    sys.exit("the project is on the path")
except ImportError:
    pass
names = {{}}
exec(compile(open({file!r}).read(), {file!r}, "exec"), names, names)
print(*names["topos"][{topo!r}](**{options!r}).switches())
"""


@pytest.mark.parametrize(
    ("file", "topo", "options", "switches"),
    [
        ("rails.py", "rails", {"servers": 2, "gpus": "2", "scale_up": "1", "slow": "3:0.5"}, "rail0 rail1 srv0 srv1"),
        ("rails.py", "rails", {"servers": "4", "gpus": "1", "mesh": "3x3", "gate_latency_us": "0.5"}, "rail0"),
        ("racks.py", "rack", {"torus": "2x2", "server": "1", "fabric": "electrical-torus"}, "fe n0 n1 n2 n3"),
        ("racks.py", "morphlux", {"tenants": "1x2@1:0"}, "fe rack0"),
        ("edge.py", "edge", {"clients": "4", "regions": "2", "trunk": "ocs"}, "ctl region0 region1 trunk"),
    ],
)
def test_mn_executes_the_text_of_a_file_from_any_folder_without_our_packages(
    file: str, topo: str, options: dict[str, object], switches: str
) -> None:
    program = AS_MN.format(root=str(FOLDER.parent), file=str(FOLDER / file), topo=topo, options=options)
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, cwd="/", timeout=60)
    assert done.stdout.strip() == switches, done.stderr
