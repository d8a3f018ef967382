"""What should have happened: the same engine and schedules over ideal links."""
