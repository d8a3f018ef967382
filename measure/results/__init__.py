"""The results folder: manifest, events, summary rows, trace, and ownership of the files."""
