"""Dead letters over HTTP, to be read: groups, lists, one by one. What is done with them is done by people."""
