"""Topics: records in order, their readers, their bounds.

The HTTP doors and `Queue` call it. Start at `log.py`: what a reader sees, in which order, and from where it goes on.
"""
