-- Purpose: the recurring tasks of a service.
-- Parameters: service.
-- Index: leasequeue_recurring_name.
-- Pages: 20 + 0.3 a row
SELECT name, from_settings, enabled FROM leasequeue_recurringtask WHERE service = %(service)s::text
