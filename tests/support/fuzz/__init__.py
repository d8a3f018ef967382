"""Fuzzing of everything that reads what others wrote: files, command lines, requests and messages.

``PYTHONPATH=tests/support python -m fuzz --count 1000000 --seed 1`` from the folder of the project; see ``--help``.
"""
