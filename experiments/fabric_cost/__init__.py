"""The fabric-cost experiment: cost and power of photonic rails and of packet switches, computed (Opus)."""
