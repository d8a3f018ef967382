"""Who sends what to whom, in which phase: programs, collectives, readers of traces, the agents."""
