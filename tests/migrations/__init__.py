"""Migrations on a database of their own."""
