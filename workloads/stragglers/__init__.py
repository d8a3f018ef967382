"""Stragglers: models of lateness, its injection and detection, and background traffic."""
