# init: script
# limit: 600
# shows: netem delays packets by the path of their light
python - <<'PYTHON'
import re

from raw_frames import forget_caches, running

from topos.kernel.path_latency import unsupported_reason
from topos.rails import RailTopo

assert unsupported_reason() is None, unsupported_reason()
found = []
for gate_us in (0.0, 5000.0):
    topo = RailTopo(servers=4, gpus=1, ports=1, rate_mbps=100, mesh="3x3@0/1/7/12", gate_latency_us=gate_us)
    with running(topo, "os-ken", rest=True) as fabric:
        for circuits in ([(1, 2), (3, 4)], [(1, 3)], [(2, 4)]):
            with fabric.client() as people:
                people.rewire("rail0", circuits, "overwrite", 0.0)
            forget_caches(fabric.net)
            gates = fabric.rest("/ocs/rail0/gates")
            print(gates["latency"])
            for path in gates["paths"]:
                a, b = (fabric.net.get(f"g{port - 1}") for port in path["circuit"])
                said = a.cmd(f"ping -c 10 -i 0.3 -W 5 {b.IP()}")
                times = sorted(float(ms) for ms in re.findall(r"time=([\d.]+)", said))
                assert len(times) == 10, said
                due_ms = 2e-3 * path["latency_us"]
                print(f"path of {len(path['gates'])} gates, round trip due {due_ms:g} ms:", *times)
                found.append((due_ms, times[0]))
still = [ms for due, ms in found if not due]
for due_ms, least_ms in found:
    assert due_ms <= least_ms <= due_ms + 5 + 2 * max(still), (due_ms, least_ms, still)
PYTHON
