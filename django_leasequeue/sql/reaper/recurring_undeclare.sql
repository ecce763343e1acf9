-- Purpose: disable the recurring tasks that the settings declared once and declare no longer.
-- Parameters: names (declared now).
-- Index: none (a small table).
-- Pages: 20 + 0.3 a row
-- Returns: the names of those that were disabled.
UPDATE leasequeue_recurringtask SET enabled = false, next_tick_at = NULL
WHERE from_settings AND enabled AND name <> ALL (%(names)s::text[])
RETURNING name
