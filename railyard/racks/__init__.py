"""Runs on racks: training jobs that are led through failures, and the experiments made of them."""
