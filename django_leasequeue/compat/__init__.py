"""Thin facades with the names of other libraries, for code that moves from them: ``jqueue`` and ``jobqueue``."""
