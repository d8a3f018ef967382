"""The faults experiment: runs are disturbed in every way that is known, and must end as documented. Needs root."""
