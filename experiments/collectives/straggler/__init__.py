"""The straggler experiment: the cost of a late rank for each all-reduce algorithm (StragglAR)."""
