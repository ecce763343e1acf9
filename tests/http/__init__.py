"""The engine against a real database."""
