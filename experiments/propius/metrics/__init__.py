"""The metrics of a run of collaborative-learning jobs on edge clients, from its timeline alone."""
