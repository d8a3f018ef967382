"""The opus experiment: what photonic rails cost training jobs of any size, computed by the model (Opus)."""
