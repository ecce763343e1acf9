"""What keeps the tables in order.

The reaper and `leasequeue_verify` call it: partitions of the lease log (`partitions`), and the search for what is
wrong (`verify`).
"""
