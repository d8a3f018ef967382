"""The railyard command."""
