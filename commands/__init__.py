"""What a person can ask for besides a run: the command line, page, sweeps, benchmarks, claims, doctor, exports."""
