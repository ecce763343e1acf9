-- token(flags): a new claim's token, by its flags: 30 random bits, 31 of a sequence, and the two of TokenBit.
(floor(random() * 1073741824)::bigint << 33) + (nextval('leasequeue_claim_token_seq') << 2)
    + CASE WHEN {flags} & {UNUSUAL} <> 0 THEN {token.GENERAL} WHEN {flags} & {REPLY} <> 0 THEN {token.CALLERS}
        ELSE 0 END
