"""The Propius experiment: collaborative-learning jobs that share edge clients (arXiv 2510.19617).

A study (``*_study``, ``packet_run``, in virtual time ``virtual``) gives rows. On packets it makes an ``EdgeRun``
(``run``), whose processes each take a role and act (``Actor``). ``control`` decides which client serves which job,
``data`` moves models and updates, ``model`` plays both in virtual time; ``metrics`` and ``verdict`` read events.
"""
