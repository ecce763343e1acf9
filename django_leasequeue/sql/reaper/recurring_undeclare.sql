-- Purpose: disable the recurring tasks that a service's settings declared once and declare no longer.
-- Parameters: service, names (declared now).
-- Index: none (a small table).
-- Pages: 20 + 0.3 a row
UPDATE leasequeue_recurringtask SET enabled = false
WHERE service = %(service)s::text AND from_settings AND enabled AND name <> ALL (%(names)s::text[])
RETURNING name
