"""Dead letters, workflows and limits over HTTP, to be read; a dead letter can be put back into a queue, a task paused.

It imports what the APIs share and the engine's dead letters. Start at `deadletters.py`.
"""
