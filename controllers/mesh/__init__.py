"""A programmable photonic mesh as an optical switch (PIP, arXiv 2501.18136): geometry, light paths, proofs."""
