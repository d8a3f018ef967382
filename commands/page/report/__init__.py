"""The report of a run, or of two runs beside each other, as one file of HTML."""
