"""System checks: of the settings, of the host's URLs, and of the database."""
