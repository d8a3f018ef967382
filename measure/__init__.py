"""Measurement of runs: live counters, metrics, fidelity verdicts, the model, results folders and figures."""
