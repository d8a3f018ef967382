"""Measures the data plane of edge learning on its real servers and links."""
