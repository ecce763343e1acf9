"""Real work for the demo: every Python file of a directory is read, parsed and reported on."""
