"""The Django Tasks door."""
