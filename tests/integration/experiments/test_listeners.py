"""What listens during a run, and who may use it: docs/security.md lists the same."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from listeners import listeners, listeners_of
from script_runs import SMOKE, descendants, finish, runs_of, start, wait_for_step

pytestmark = [pytest.mark.root, pytest.mark.beside]

OUTSIDE = {"tcp 127.0.0.1:REST", "tcp 127.0.0.1:PAGE", "unix RUN/job.sock 0600"}
YARD = {
    "tcp 127.0.0.1:6653",
    "unix RUN/db.sock 0750",
    "unix RUN/ovsdb-server.PID.ctl 0750",
    "unix RUN/ovs/ovs-vswitchd.PID.ctl 0750",
    "unix RUN/ovs/railN.mgmt 0750",
    "unix RUN/ovs/railN.snoop 0750",
}
FAST_PATH = {"unix RUN/ovs/railN.controller 0600", "unix RUN/railN.mgmt 0600"}
HOST, HOSTS = {"tcp 10.N.0.N:7700"}, 8
PATTERNS = {r"\.\d+\.ctl": ".PID.ctl", r"rail\d": "railN", r"10\.\d\.0\.\d:": "10.N.0.N:"}


def test_nothing_listens_but_what_is_documented(tmp_path: Path) -> None:
    out = tmp_path / "results"
    options = (*SMOKE, "--modes", "on-demand", "--steps", "500", "--rest", "127.0.0.1:0", "--watch")
    alone = ("--agents-per-process", "1")  # so that there is a process in the network of each host
    process = start("rail_reconfiguration.py", *options, *alone, "--out", str(out))
    try:
        assert process.stderr is not None
        said = ""
        while "REST on " not in said or "Page of the run: " not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        match = re.search(r"^REST on http://(127\.0\.0\.1:\d+) with the token in (.*):$", said, re.MULTILINE)
        shown = re.search(r"^Page of the run: http://(127\.0\.0\.1:\d+)/[\w-]{20,}/$", said, re.MULTILINE)
        assert match is not None and shown is not None, said
        address, file, page = match[1], Path(match[2]), shown[1]
        assert file == out / "rest-token"
        check_token(address, file)
        wait_for_step(process, out)
        (run,) = runs_of(process.pid)
        assert stat.S_IMODE(run.path.stat().st_mode) == 0o700
        replaced = {re.escape(str(run.path)): "RUN", re.escape(address): "127.0.0.1:REST"}
        replaced |= {re.escape(page): "127.0.0.1:PAGE"} | PATTERNS
        processes = [process.pid, *descendants(process.pid)]
        spaces = {os.stat(f"/proc/{pid}/ns/net").st_ino: pid for pid in processes}
        del spaces[os.stat("/proc/self/ns/net").st_ino]
        inside = [plain(listeners(pid).values(), replaced) for pid in spaces.values()]
        (yard,) = (found for found in inside if found != HOST)
        assert len(inside) == 1 + HOSTS and yard - FAST_PATH == YARD
        everywhere = plain([text for pid in processes for text in listeners_of(pid)], replaced)
        assert everywhere - FAST_PATH == OUTSIDE | YARD | HOST
    finally:
        process.send_signal(signal.SIGINT)
        finish(process)


def plain(found: Iterable[str], replaced: Mapping[str, str]) -> set[str]:
    """The listeners ``found``, with what differs between runs ``replaced``."""
    texts = set(found)
    for pattern, text in replaced.items():
        texts = {re.sub(pattern, text, each) for each in texts}
    return texts


def check_token(address: str, file: Path) -> None:
    """The file lets its owner alone call the interface at ``address``."""
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    token = file.read_text().strip()
    call = Request(f"http://{address}/switches")
    with pytest.raises(HTTPError) as refused:
        urlopen(call, timeout=20)
    with refused.value as error:
        assert error.code == 401
    call.add_header("Authorization", f"Bearer {token}")
    with urlopen(call, timeout=20) as answer:
        assert [switch["name"] for switch in json.load(answer)["switches"]] == ["rail0", "rail1"]
