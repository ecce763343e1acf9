"""What several parts of the suite share."""
