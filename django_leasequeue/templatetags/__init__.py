"""Filters and tags for the templates of the admin."""
