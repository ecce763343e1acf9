"""One command a file.

A command parses its options, calls the engine, the worker or the reaper, and prints; nothing imports it. Start at
`runworker.py`; what commands share is in `management/__init__.py`.
"""
