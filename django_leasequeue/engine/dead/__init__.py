"""Dead letters: finding, reading and acting on them.

The admin, the commands and the HTTP triage call it. Start at `deadletter.py`, then `action.py` (retry, redrive,
discard).
"""
