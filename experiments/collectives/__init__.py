"""Repetitions of one collective on one fabric: collective algorithms, a late rank, all-to-alls over circuits."""
