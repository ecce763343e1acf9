"""System checks: of the settings, and of the database."""
