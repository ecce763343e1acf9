"""Filters and tags for the templates of the admin.

Only the admin's templates use them.
"""
