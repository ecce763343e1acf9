-- Purpose: numbers for made-up jobs, so that no real job ever has one of them.
-- Parameters: size.
SELECT ARRAY(SELECT nextval('leasequeue_job_seq_seq') FROM generate_series(1, %(size)s::int))
