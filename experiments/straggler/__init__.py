"""The straggler experiment: what a late rank costs each all-reduce (StragglAR)."""
