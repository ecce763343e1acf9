-- has_started(entry): whether a ready or delayed job j has begun since it was enqueued or retried; one that sleeps has,
-- without a delivery.
({entry}.deliveries > 0 OR {entry}.flags & {FAILED} <> 0 AND j.first_claimed_at IS NOT NULL)
