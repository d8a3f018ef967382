"""A run with ``--watch --control`` on real packets: its page, acts from there, and an end that the page changes not."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from script_runs import PATIENCE_S, SMOKE, descendants, finish, start, wait_for_step, words_of

from measure.results.manifest import REST
from measure.results.results import Results

pytestmark = pytest.mark.root
SCRIPT = "rail_reconfiguration.py"
RUN = (*SMOKE, "--modes", "on-demand", "--delays", "50", "--no-figures")
RAN = (0, 8)


def told(address: str, path: str, act: dict[str, Any] | None = None) -> Any:
    """What the page's server answers to ``path``, or to an act."""
    body = None if act is None else json.dumps(act).encode()
    call = Request(f"{address}{path}", body, {"Content-Type": "application/json"})
    try:
        with urlopen(call, timeout=PATIENCE_S) as answer:
            return json.load(answer)
    except HTTPError as error:
        with error:
            return json.load(error)


def page_of(process: Any) -> str:
    """The address of the page, as the run says it."""
    begin = "Page of the run: "
    said = next(line for line in process.stderr if line.startswith(begin))
    return str(said.removeprefix(begin).strip())


def servers_of(pid: int) -> list[int]:
    """Processes of a run that serve its page."""
    return [child for child in descendants(pid) if "commands.page.serving" in words_of(child)]


@pytest.mark.timed  # the server of the page runs when nothing else has work
def test_a_run_is_shown_and_ends_as_without_a_page(tmp_path: Path) -> None:
    out = tmp_path / "results"
    process = start(SCRIPT, *RUN, "--steps", "4", "--out", str(out), "--watch")
    address = page_of(process)
    (server,) = servers_of(process.pid)
    with urlopen(f"{address}stream", timeout=PATIENCE_S) as stream:
        wait_for_step(process, out)
        (point,) = told(address, "overview.json")["points"]
        assert (point["state"], point["mode"]) == ("running", "on-demand")
        line = told(address, "timeline.json?point=0")
        assert line["live"] and {"rank0", "rail0:1"} <= line["bars"].keys()
        assert told(address, "control", {"act": "fail", "switch": "rail0", "port": 1})["error"].startswith(
            "acting is off"
        )
        status, output, errors = finish(process)
        messages = stream.read().decode()
    assert status in RAN and "Traceback" not in errors and f"Results in {out}" in output
    *_, last, over = messages.strip().split("\n\n")
    assert json.loads(last.partition("data: ")[2])["live"] is False
    assert over == f'event: over\ndata: {{"says":"the run has ended; railyard watch {out} shows it again"}}'
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


@pytest.mark.timed
def test_people_act_from_the_page_and_it_is_in_the_timeline(tmp_path: Path) -> None:
    out = tmp_path / "results"
    process = start(SCRIPT, *RUN, "--steps", "500", "--out", str(out), "--watch", "--control")
    try:
        address = page_of(process)
        wait_for_step(process, out)
        assert told(address, "overview.json")["control"] is True
        wrong = told(address, "control", {"act": "fail", "switch": "rail9", "port": 1})
        assert wrong == {"error": "there is no switch rail9; the switches of this fabric are rail0, rail1"}
        assert told(address, "control", {"act": "rewire", "switch": "rail0", "circuits": [[1, 1]]})["error"].startswith(
            "circuit 1-1 joins port 1 to itself"
        )
        assert Results(out).manifest()[REST].startswith("127.0.0.1:")
        assert told(address, "control", {"act": "fail", "switch": "rail0", "port": 1}) == {"ok": True}
        end = time.monotonic() + PATIENCE_S
        while told(address, "state.json?point=0")["failed"]["rail0"] != [1]:
            assert time.monotonic() < end
            time.sleep(0.05)
    except OSError:  # the run may end at once, for lack of the port
        pass
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGINT)
        status, _, errors = finish(process)
    assert status in (6, 130), errors
    manual = [(e["what"], e["rail"], e["ports"]) for e in Results(out).events() if e.kind == "manual"]
    assert manual == [("fail", "rail0", [1])]
    (acts,) = Results(out).manifest()["acts"]
    assert (acts["acts"], acts["first"]) == (1, "somebody made port 1 of rail0 fail over REST")
    assert REST not in Results(out).manifest()
