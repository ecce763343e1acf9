-- Purpose: delete parts of the stage.
-- Parameters: parts.
-- Index: leasequeue_lakestage_part.
-- Pages: 20 + 1.4 a row
DELETE FROM leasequeue_lakestage WHERE part = ANY (%(parts)s::uuid[])
