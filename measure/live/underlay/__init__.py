"""The network between the machines that a fabric spreads over: a probe of it, and the far end of the probe."""
