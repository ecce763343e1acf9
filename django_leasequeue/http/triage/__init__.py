"""Dead letters over HTTP, to be read: groups, lists, single letters. What is done with them is done by people."""
