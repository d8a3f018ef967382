"""Processes that run a script as ranks: what they report when a script dies, disagrees, or ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

torch = pytest.importorskip("torch", reason="needs the extra torch (docs/torch.md)")

from checkout import IS_OPEN  # noqa: E402
from script_jobs import free_port, run_ranks  # noqa: E402

from workloads.pytorch.script_ranks import ScriptRank, ScriptRanks  # noqa: E402

SCRIPT = """
import os
import signal
import sys
import torch
import torch.distributed as dist

what = open("what").read()
print(sys.argv, os.environ["LOCAL_RANK"], os.environ["MASTER_ADDR"], torch.get_num_threads())
dist.init_process_group("nccl" if what == "nccl" else "gloo")
rank, x = dist.get_rank(), torch.ones(4)
dist.all_reduce(x)
if what == "disagree" and rank == 2:
    dist.broadcast(x, src=0)
if what == "raise" and rank == 1:
    raise ValueError("no such data")
if what == "kill" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if what == "leave" and rank == 1:
    sys.exit()
if what == "status" and rank == 1:
    sys.exit(3)
dist.all_reduce(x)
print(x.tolist())
"""


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> ScriptRanks:
    monkeypatch.chdir(tmp_path)
    Path("job.py").write_text(SCRIPT)
    scripts = ScriptRanks.start("job.py", ["--lr", "1"], strict=True)
    request.addfinalizer(scripts.close)
    return scripts


def test_ends_of_scripts(scripts: ScriptRanks, tmp_path: Path) -> None:
    def run(what: str) -> list[str]:
        (tmp_path / "what").write_text(what)
        return run_ranks(scripts, tmp_path, 3)

    assert run("well")[2].splitlines() == ["['job.py', '--lr', '1'] 2 127.0.0.1 1", "[9.0, 9.0, 9.0, 9.0]"]
    assert (scripts.failures, scripts.ended) == ([], {0: 0, 1: 0, 2: 0})
    assert scripts.computes[0]["wall_s"] > 0
    scripts.computes[0]["late_s"] = scripts.computes[0]["wall_s"]
    assert "s of computing are more than --compute gives (3 ranks on " in scripts.warning

    output = run("raise")[1]
    assert scripts.failures[0][:2] == (1, "the script of rank 1 died with status 1: ValueError: no such data")
    assert scripts.failures[0].traceback in output
    assert output.count("File") == 1 and 'raise ValueError("no such data")' in output
    assert all(scripts.ended.values())

    run("kill")
    assert scripts.failures[0][:2] == (1, "the script of rank 1 was killed by signal 9 in step 0")
    run("status")
    assert scripts.failures[0][:2] == (1, "the script of rank 1 ended with status 3 in step 0")

    begin = time.monotonic()
    run("disagree")
    assert scripts.failures[0].sentence == (
        "rank 0 is in call 1, all_reduce of 16 bytes over ranks 0-2; "
        "rank 2 is in call 1, broadcast of 16 bytes over ranks 0-2, so neither can go on"
    )
    assert time.monotonic() - begin < 20
    run("leave")
    assert "rank 1 has ended its script, so neither can go on" in scripts.failures[0].sentence

    assert "railyard: the script asks for nccl, but this is a CPU: ask for gloo" in "".join(run("nccl"))
    assert "the script asks for nccl" in scripts.failures[0].sentence


def test_a_rank_that_is_killed_ends_all(scripts: ScriptRanks, tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(60)\n")

    port = free_port()
    ranks = [ScriptRank(n, 2, n, 2, "127.0.0.1", port, "lo", str(tmp_path / f"{n}.txt")) for n in range(2)]
    scripts.launch(ranks, [-1, -1])
    deadline = time.monotonic() + 60
    while "begun" not in "".join(path.read_text() for path in tmp_path.glob("*.txt")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    scripts.kill(1)
    while len(scripts.ended) < 2 and time.monotonic() < deadline:
        scripts.poll()
        time.sleep(0.05)
    assert scripts.ended[1] == -signal.SIGKILL and scripts.ended[0] != 0
    assert [failure.rank for failure in scripts.failures] == [1]


@pytest.mark.skipif(os.geteuid() != 0 or not IS_OPEN, reason="needs root and a checkout that another user may read")
def test_under_sudo_a_script_is_its_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "65534")
    monkeypatch.setenv("SUDO_GID", "65534")
    with TemporaryDirectory() as made:  # pytest's own folders are root's alone
        folder = Path(made)
        folder.chmod(0o755)
        monkeypatch.chdir(folder)  # the checkout may be root's alone too
        (folder / "job.py").write_text("import os\nprint(os.getuid(), os.getgid(), os.environ['HOME'])\n")
        with ScriptRanks.start(str(folder / "job.py"), []) as scripts:
            output = run_ranks(scripts, folder, 1)[0]
        assert output.startswith("65534 65534 /")
        assert (folder / "0.txt").stat().st_uid == 65534
