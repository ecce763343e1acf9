"""Queues: what they are, how they are declared, how they are doing.

Nearly all of the engine imports it. Start at `Definition` in `presets.py`: what a queue is; `declared.py` reads it from
the settings.
"""
