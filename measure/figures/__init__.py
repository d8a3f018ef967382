"""Figures of a run, one module each: functions that turn events or rows into a matplotlib Figure."""
