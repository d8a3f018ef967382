"""The Propius experiment: collaborative-learning jobs that share edge clients (arXiv 2510.19617)."""
