# init: script
# limit: 1500
# shows: both fabrics of a rack repair a job after a kill
out=$(mktemp -d)
run_railyard run failover --quick --attempts 1 --heartbeat 500 --misses 20 --time 5 --out "$out/results"
python - "$out/results/summary.json" <<'PYTHON'
import json, sys
rows = json.load(open(sys.argv[1]))
print(json.dumps(rows, indent=1))
assert {row["fabric"] for row in rows} == {"photonic", "e1"}
assert all(row["checksum_ok"] for row in rows)
PYTHON
