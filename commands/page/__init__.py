"""See a run: a live page of it, a report in one file, and two runs beside each other."""
