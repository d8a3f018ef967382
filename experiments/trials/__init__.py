"""Trials: one collective on one fabric, repeated; shared by the collective, straggler and all-to-all experiments."""
