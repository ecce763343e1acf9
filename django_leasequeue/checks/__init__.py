"""System checks: of the settings, of the host's URLs, and of the database.

They import settings, models and URLs; nothing imports them but the app's `ready`. Start at `settings.py`.
"""
