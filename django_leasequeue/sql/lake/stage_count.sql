-- Purpose: the rows of some parts of the stage.
-- Parameters: parts.
-- Index: leasequeue_lakestage_part.
-- Returns: how many.
SELECT count(*) FROM leasequeue_lakestage WHERE part = ANY (%(parts)s::uuid[])
