-- Purpose: the names of recurring tasks, and whether the settings made them.
-- Index: none (a small table).
-- Pages: 20 + 0.1 a row
-- Returns: name, from_settings.
SELECT name, from_settings FROM leasequeue_recurringtask
