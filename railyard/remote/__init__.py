"""Processes of a run on several machines: connections to them, their OpenSSH transport, and their clocks."""
