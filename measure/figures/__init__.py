"""The figures of a run, one file each: events or rows in, a matplotlib Figure out."""
