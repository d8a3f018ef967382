"""Sweeps: many points of an experiment in one folder, which stop and go on after anything."""
