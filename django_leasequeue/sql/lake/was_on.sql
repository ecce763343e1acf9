-- Purpose: whether the database was on another system before it was restored or upgraded.
-- Parameters: system.
-- Index: none: a row for each timeline that ever was.
-- Pages: whole tables: a row for each timeline that ever was.
SELECT EXISTS (SELECT FROM leasequeue_timeline WHERE system = %(system)s::text)
