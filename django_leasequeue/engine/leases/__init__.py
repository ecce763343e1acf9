"""Leases: claiming, settling, extending, expiring.

A *claim* is one call that leased jobs, and its row. Its *token*, a random number that no other claim has, is the proof
of holding: who settles, extends or reports gives it with the number of the job. A *lease id* is both as one text, for
the HTTP API. Where a result, an event or a listed job says which claim had it, that column ``claim`` is the token.
"""
