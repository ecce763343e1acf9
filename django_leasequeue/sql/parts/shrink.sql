-- shrink(tokens): claims lose jobs; m has what is left of each (token, part, seqs: null for nothing, deliveries).
ended AS (
    DELETE FROM leasequeue_claim c USING m WHERE c.token = m.token AND c.part = m.part AND m.seqs IS NULL AND c.token = ANY ({tokens})
), rest AS (
    UPDATE leasequeue_claim c SET seqs = m.seqs, deliveries = CASE WHEN c.deliveries IS NOT NULL THEN m.deliveries END
    FROM m WHERE c.token = m.token AND c.part = m.part AND m.seqs IS NOT NULL AND c.token = ANY ({tokens})
)
