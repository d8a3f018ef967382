"""Metrics of a measured point, computed from its events, and the verdict on their fidelity."""
