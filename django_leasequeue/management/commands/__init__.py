"""One command a file.

A command parses its options, calls the engine, the worker or the reaper, and prints; nothing imports it. Start at
`runworker.py`; options that commands share are in `management/base.py`.
"""
