"""Topics: records in order, their readers, their bounds."""
