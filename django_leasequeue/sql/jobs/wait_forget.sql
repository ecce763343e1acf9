-- Purpose: forget an open wait whose outcome is recorded as a step: its event must not wake the job later.
-- Parameters: seq, name.
-- Index: leasequeue_jobstep_pkey.
-- Pages: 20
DELETE FROM leasequeue_jobstep WHERE seq = %(seq)s::bigint AND name = %(name)s::text AND event IS NOT NULL
