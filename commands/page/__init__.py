"""See a run: a live page of it, a report of one in a file, and two runs compared in one."""
