"""Fuzzing of everything that reads what others wrote: files, command lines, requests and messages."""
