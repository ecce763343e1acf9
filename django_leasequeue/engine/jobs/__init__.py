"""Jobs: adding them, reading them, taking them out."""
