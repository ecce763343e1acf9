"""Query plans over large tables."""
