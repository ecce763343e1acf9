"""Flow control: limits by key, and workflows.

A job that may not start yet stands in Delayed at a time that never comes.

Nothing of it is on the way of plain jobs. Producers only add rows; the transaction in which a job of a limit or of a
workflow ends adds a turn; claimers take turns, lock what they concern, and set free what may start.
"""
