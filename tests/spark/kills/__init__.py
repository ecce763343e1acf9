"""Kills of the driver and crashes of PostgreSQL under a lake, and the lake compared with the log, row by row."""
