"""The workers of a sweep on several machines, by Dask: which point goes where, how, and how the results come back."""
