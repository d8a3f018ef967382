"""The processes of a run: how they start, talk and end."""
