"""The experiments: one folder each, and what they share."""
