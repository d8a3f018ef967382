# init: script
# limit: 1200
# shows: a job on electrical and optical rails, verified
out=$(mktemp -d)
run_railyard run rails --workload smoke --modes electrical,on-demand --delays 500 --time 20 --steps 1 --repeats 1 --attempts 1 --verify \
    --out "$out/results"
python - "$out/results/summary.json" <<'PYTHON'
import json, sys
rows = json.load(open(sys.argv[1]))
print(json.dumps(rows, indent=1))
assert [row["mode"] for row in rows] == ["electrical", "on-demand"]
assert all(row["step_time_s"] > row["predicted_step_time_s"] > 0 for row in rows)
assert all(row["verified"] > 0 == row["wrong"] for row in rows)
PYTHON
