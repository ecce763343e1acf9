"""Dead letters, workflows and limits over HTTP, to be read. What is done with them is done by people."""
