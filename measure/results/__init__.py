"""The results folder: manifest, events, rows, trace, and who owns the files."""
