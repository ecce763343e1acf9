"""System checks: of the settings, of the host's URLs, and of the database.

They import settings, models and URLs; only the app's `ready` imports them. Start at `settings.py`.
"""
