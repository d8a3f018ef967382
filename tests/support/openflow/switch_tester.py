"""The switch tester of the OpenFlow framework (``os_ken.tests.switch.tester``) on two bridges of an emulation.

The tester sends packets from one bridge through the other, the target, and judges what the target does with them by the
flows, groups and meters of a pattern. The framework's package has the patterns, in a folder for each version. As a
script, this file runs patterns on several datapaths and prints what each says:

    sudo PYTHONPATH=.:tests/support .venv/bin/python tests/support/openflow/switch_tester.py of13/match of13/action
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mininet.topo import Topo

from topos.kernel import namespaces
from topos.kernel.emulation import Emulation
from topos.kernel.fastpath.offload import Forwarding

TESTER = "os_ken.tests.switch.tester"
VERSIONS = {"of10": "openflow10", "of13": "openflow13", "of14": "openflow14"}
STREAM_S = 10
"""How long a stream of packets lasts, for throughputs that may be 10 % wrong. The patterns say 30 s. In 3 s groups that
select by the hash of random packets are wrong by more now and then."""
SETTLE_S = 0.05
"""How long the tester waits between a pattern's flows and its packets. Open vSwitch alone needs that: its caches follow
its tables some milliseconds later, and tests of a tester that does not wait fail now and then."""
COUNTED_S = 0.5
"""How long the tester waits before it reads the counts of tables, for packets of the test before to be counted."""
_COUNT_EVERY_MS = 100
"""How often Open vSwitch collects the counts of its caches (the least that it takes). Its default, 500 ms, is too much
beside a throughput that may be 10 % wrong."""
# The tester's own loop counts on sleeping 10 ms each time, and falls behind on a busy machine.
_RUN = f"""
import sys, time, warnings
warnings.simplefilter("ignore")
from os_ken.lib import hub
hub.patch()
from os_ken import cfg, flags, log
from os_ken.base import app_manager
cfg.CONF(args=sys.argv[1:], project="tester", default_config_files=[], default_config_dirs=[])
log.init_log()
from {TESTER} import CONTINUOUS_THREAD_INTVL, STATE_GET_MATCH_COUNT, OfTester
count, send = OfTester._test_get_match_count, OfTester._one_time_packet_send
def send_later(self, packet):
    hub.sleep({SETTLE_S})
    send(self, packet)
def send_on_time(self, arg):
    rate, begin, sent = arg["packet_counter_inc"] / CONTINUOUS_THREAD_INTVL, time.monotonic(), 0
    while True:
        due = int(rate * (time.monotonic() - begin))
        for _ in range(due - sent):
            data = arg["packet_binary"]
            if arg["randomize"]:
                packet = eval("/".join(arg["packet_text"]), vars(sys.modules[OfTester.__module__]))
                packet.serialize()
                data = packet.data
            self.tester_sw.send_packet_out(data)
        sent = due
        hub.sleep(CONTINUOUS_THREAD_INTVL)
def count_later(self):
    if self.state == STATE_GET_MATCH_COUNT:
        hub.sleep({COUNTED_S})
    return count(self)
OfTester._test_get_match_count = count_later
OfTester._one_time_packet_send = send_later
OfTester._send_packet_thread = send_on_time
sys.modules[OfTester.__module__].INTERVAL = {COUNTED_S}
app_manager.AppManager.run_apps(["{TESTER}", "os_ken.controller.ofp_handler"])
"""
_RESULT = re.compile(r"^    (\S.*?)\s+(OK|ERROR)$")


class TesterTopo(Topo):  # type: ignore[misc]
    """The target ``s1`` and the tester ``s2``, joined by three links between ports of equal numbers."""

    def build(self) -> None:
        """Add the two switches and the three links."""
        target, tester = self.addSwitch("s1", dpid="1"), self.addSwitch("s2", dpid="2")
        for number in (1, 2, 3):
            self.addLink(target, tester, port1=number, port2=number)


def patterns() -> Path:
    """The folder with the patterns of the installed framework."""
    found = importlib.util.find_spec("os_ken.tests.switch")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def results(net: Emulation, version: str, files: Iterable[Path], limit_s: float) -> dict[str, str]:
    """What the tester says of each test in ``files``: ``OK`` or what is wrong, by file and description.

    ``net`` is an emulation of ``TesterTopo`` without another controller.
    """
    net["s1"].cmd(f"ovs-vsctl set Open_vSwitch . other_config:max-revalidator={_COUNT_EVERY_MS}")
    with tempfile.TemporaryDirectory() as folder:
        for file in files:
            text = re.sub(r'"duration_time": *30', f'"duration_time": {STREAM_S}', file.read_text(encoding="utf-8"))
            (Path(folder) / f"{file.parent.name}-{file.name}").write_text(text, encoding="utf-8")
        options = ["--test-switch-dir", folder, "--ofp-listen-host", "127.0.0.1", "--ofp-tcp-listen-port", "6653"]
        for role in ("target", "tester"):
            options += [f"--test-switch-{role}-version", VERSIONS[version]]
        with namespaces.inside(net.yard.netns_fd):
            process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-c", _RUN, *options],
                env={**os.environ, "OSKEN_HUB_TYPE": "eventlet"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            output += "\nthe tester did not end in time"
    return _read(output)


def _read(output: str) -> dict[str, str]:
    found: dict[str, str] = {}
    file, last = "", None
    begun = False
    for line in output.splitlines():
        result = _RESULT.match(line)
        if line == "--- Test start ---":
            begun = True
        elif line.startswith("---"):
            begun = begun and "Test end" not in line
        elif not begun:
            continue
        elif result:
            last = f"{file}: {result[1]}"
            found[last] = result[2]
        elif line.startswith("        ") and last is not None:
            found[last] = re.split(r"[({]", line.strip())[0]
        elif line and not line.startswith((" ", ".", "dpid=", "wait")):
            file = line.strip()
    assert found, f"the tester judged nothing: {output[-2000:]}"
    return found


def compare(
    datapaths: Sequence[Forwarding], version: str, files: Sequence[Path], limit_s: float
) -> dict[str, list[str]]:
    """What the tester says of each test on each of ``datapaths``, which run at the same time."""
    with ExitStack() as stack:
        nets = [stack.enter_context(Emulation(TesterTopo(), datapath=datapath)) for datapath in datapaths]
        with ThreadPoolExecutor() as pool:
            columns = list(pool.map(lambda net: results(net, version, files, limit_s), nets))
    tests = dict.fromkeys(test for column in columns for test in column)
    return {test: [column.get(test, "not judged") for column in columns] for test in tests}


def _description(file: Path) -> str:
    """How the tester names a file."""
    return str(json.loads(file.read_text(encoding="utf-8"))[0])


def main() -> None:
    """Run patterns and print, for each test, what the tester says on each datapath."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="+", help="files or folders under the framework's patterns")
    parser.add_argument("--datapaths", default="ovs,bpf", help="separated by commas")
    parser.add_argument("--limit", type=float, default=3600, help="seconds for one datapath and version")
    parser.add_argument("--again", type=int, default=2, help="how often a test is repeated whose results differ")
    parser.add_argument("--json", type=Path, help="a file for the results")
    options = parser.parse_args()
    datapaths, everything = options.datapaths.split(","), dict[str, Any]()
    for version in VERSIONS:
        paths = [patterns() / name for name in options.patterns if name.startswith(version)]
        files = sorted(file for path in paths for file in (path.rglob("*.json") if path.is_dir() else [path]))
        if not files:
            continue
        found = compare(datapaths, version, files, options.limit)
        for _ in range(options.again):
            differing = {test for test, said in found.items() if len(set(said)) > 1}
            some = [file for file in files if any(test.startswith(f"{_description(file)}: ") for test in differing)]
            if some:
                said_again = compare(datapaths, version, some, options.limit)
                found |= {test: said for test, said in said_again.items() if test in differing}
        for test, said in found.items():
            print(f"{version} {test}: {' | '.join(said)}")
        equal = sum(len(set(said)) == 1 for said in found.values())
        passed = ", ".join(
            f"{sum(s[place] == 'OK' for s in found.values())} OK with {d}" for place, d in enumerate(datapaths)
        )
        print(f"{version}: {len(files)} files, {len(found)} tests, {equal} with the same result; {passed}", flush=True)
        everything[version] = found
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
