"""Dead letters, workflows and limits over HTTP, to be read; a dead letter can be put back into a queue."""
