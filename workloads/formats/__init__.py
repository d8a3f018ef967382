"""Files that other tools wrote, read as programs and schedules."""
