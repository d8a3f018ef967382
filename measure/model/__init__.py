"""The model: predicts a run with the engine, the executors and the schedules of a live run over ideal links."""
