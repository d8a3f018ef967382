"""The rail experiment: step time of a training job against reconfiguration delay (Opus)."""
