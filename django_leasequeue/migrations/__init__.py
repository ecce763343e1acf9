"""Migrations: see CONTRIBUTING.md for their rules."""
