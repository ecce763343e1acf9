-- Purpose: forget parts of the stage.
-- Parameters: parts.
-- Index: leasequeue_lakestage_part.
DELETE FROM leasequeue_lakestage WHERE part = ANY (%(parts)s::uuid[])
