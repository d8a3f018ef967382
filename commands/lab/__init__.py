"""Fabrics that stay: brought up once, used by any program, taken down by name."""
