-- shrink(tokens): claims lose jobs; remaining has what is left of each (token, part, seqs: null for nothing,
-- deliveries).
ended AS (
    DELETE FROM leasequeue_claim c USING remaining WHERE c.token = remaining.token AND c.part = remaining.part
        AND remaining.seqs IS NULL AND c.token = ANY ({tokens})
), rest AS (
    UPDATE leasequeue_claim c SET seqs = remaining.seqs, deliveries = CASE
        WHEN c.deliveries IS NOT NULL THEN remaining.deliveries END
    FROM remaining WHERE c.token = remaining.token AND c.part = remaining.part AND remaining.seqs IS NOT NULL
        AND c.token = ANY ({tokens})
)
