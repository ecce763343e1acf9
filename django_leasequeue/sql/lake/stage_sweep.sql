-- Purpose: delete parts of the stage without a commit within a day: their tasks or drivers died.
-- Index: none: the stage holds what is on its way.
-- Pages: whole tables: the stage, which holds what is on its way.
DELETE FROM leasequeue_lakestage WHERE staged_at < clock_timestamp() - interval '1 day'
