"""What keeps the tables in order."""
