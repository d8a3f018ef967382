"""Workloads: programs, collectives and trace readers, and the agents that run them."""
