"""Collectives as schedules of transfers, and the proof that each does what it says."""
