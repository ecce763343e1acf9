-- Purpose: the rows of some parts of the stage.
-- Parameters: parts.
-- Index: leasequeue_lakestage_part.
-- Pages: 30
SELECT count(*), min(id), max(id) FROM leasequeue_lakestage WHERE part = ANY (%(parts)s::uuid[])
