"""Collectives as schedules of transfers, and the verification of each schedule."""
