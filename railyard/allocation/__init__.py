"""The allocation study: racks filled with slices, computed without packets."""
