-- Purpose: the rows of some parts of the stage.
-- Parameters: parts.
-- Index: leasequeue_lakestage_part.
-- Pages: 30
-- Returns: how many, the lowest and the highest number (nulls: none).
SELECT count(*), min(id), max(id) FROM leasequeue_lakestage WHERE part = ANY (%(parts)s::uuid[])
