"""Trials: repetitions of one collective on one fabric; shared by the collective, straggler, all-to-all experiments."""
