"""The allocation experiment: racks filled with slices, computed without packets (MORPHLUX)."""
