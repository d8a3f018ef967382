"""Collaborative learning on edge devices: jobs, the clients they share, and how each behaves over time.

Facts are those of Propius (arXiv 2510.19617) and of its authors' public code at commit 73807cc.
"""
