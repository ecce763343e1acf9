"""A host's project, which runs with the previous release as with this version: it uses public names of both only."""
