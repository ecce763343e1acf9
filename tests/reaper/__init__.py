"""The reaper against a real database."""
