-- token(): a new claim's token, by the flags x.flags: its low bits say which statement may complete its jobs.
(floor(random() * 1073741824)::bigint << 33) + (nextval('leasequeue_claim_token_seq') << 2)
    + CASE WHEN x.flags & 127 = 0 THEN 0 WHEN x.flags & 127 = 1 THEN 2 ELSE 1 END
