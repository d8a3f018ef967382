"""The control plane that shares edge clients among jobs: job manager, client managers, scheduler, and policies.

Facts are those of Propius (arXiv 2510.19617) and of its authors' public code at commit 73807cc. Only ``servers`` and
``trunk_server`` read a clock and open sockets: every other method takes ``now`` as monotonic seconds.
"""
