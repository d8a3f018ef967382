"""Circuits, matchings and the optical switch that holds them: plain data and pure functions."""
