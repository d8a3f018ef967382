"""The command line, and what it offers besides runs: page, sweeps, benchmarks, claims, doctor, exports."""
