-- Purpose: invalid members of limits and workflows: with a slot that no job needs, ready or leased without
--   one, more of a key than its limit allows, held by nothing; and jobs with the flag of a member but without its row.
--   Members with an event to come are skipped. A claim has the flag for any of its jobs, so it is checked only while it
--   has all jobs of the log.
-- Parameters: size.
-- Index: whole tables, hashed: an operator's statement.
-- Pages: whole tables, as it compares all of them.
-- Returns: differences in all, difference, lowest seq (0: none), queue id, what is expected (json), what was found
--   (json).
{keeps_host_settings(verify_snapshot.sql has set the planner)}
WITH turns AS MATERIALIZED (
    SELECT DISTINCT u.seq FROM leasequeue_flowturn f, unnest(f.seqs) AS u(seq)
), keyed AS MATERIALIZED (
    SELECT DISTINCT key FROM leasequeue_flowturn WHERE key IS NOT NULL
), live AS MATERIALIZED (
    SELECT seq FROM leasequeue_ready WHERE flags & {FLOW} <> 0
    UNION ALL SELECT u.seq FROM leasequeue_claim c, unnest(c.seqs) AS u(seq) WHERE c.flags & {FLOW} <> 0
    UNION ALL SELECT seq FROM leasequeue_delayed WHERE flags & {KEEPS_SLOT} <> 0
), held AS MATERIALIZED (
    SELECT seq, queue_id FROM leasequeue_delayed WHERE available_at >= {HELD}
), marked AS MATERIALIZED (
    SELECT c.token, c.queue_id, c.created_at, array_agg(u.seq) AS seqs
    FROM leasequeue_claim c, unnest(c.seqs) AS u(seq) WHERE c.flags & {FLOW} <> 0
    GROUP BY c.token, c.queue_id, c.created_at
), began AS MATERIALIZED (
    SELECT e.claim, sum(cardinality(e.seqs)) AS jobs FROM leasequeue_leaseevent e
    WHERE e.kind = {event.CLAIMED} AND e.occurred_at >= (SELECT min(created_at) FROM marked)
        AND e.claim IN (SELECT token FROM marked) GROUP BY e.claim
), members AS MATERIALIZED (
    SELECT queue_id, ARRAY[seq] AS seqs FROM leasequeue_ready WHERE flags & {FLOW} <> 0
    UNION ALL SELECT queue_id, ARRAY[seq] FROM leasequeue_delayed
        WHERE flags & {FLOW} <> 0 AND available_at < {HELD}
    UNION ALL SELECT m.queue_id, m.seqs FROM marked m JOIN began b ON b.claim = m.token AND b.jobs = cardinality(m.seqs)
), differences AS (
    SELECT CASE
            WHEN m.taken AND live.seq IS NULL THEN 'lost_slot'
            WHEN NOT m.taken AND live.seq IS NOT NULL AND l.concurrency IS NOT NULL THEN 'no_slot'
            WHEN held.seq IS NOT NULL AND NOT m.waits AND m.pending = 0
                AND m.state = {member.OPEN} THEN 'waits_for_nothing' END AS difference,
        m.seq, m.queue_id, m.taken, m.waits, m.pending, m.state, l.name, k.key
    FROM leasequeue_member m LEFT JOIN live ON live.seq = m.seq LEFT JOIN held ON held.seq = m.seq
    LEFT JOIN leasequeue_limitkey k ON k.id = m.key LEFT JOIN leasequeue_limit l ON l.id = k.limit_id
    WHERE m.seq NOT IN (SELECT seq FROM turns)
    UNION ALL
    SELECT 'held_by_nobody', held.seq, held.queue_id, NULL, NULL, NULL, NULL, NULL, NULL
    FROM held LEFT JOIN leasequeue_member m ON m.seq = held.seq
    WHERE m.seq IS NULL AND held.seq NOT IN (SELECT seq FROM turns)
    UNION ALL
    SELECT 'no_member', min(u.seq), x.queue_id, NULL, NULL, NULL, NULL, NULL, NULL
    FROM members x CROSS JOIN unnest(x.seqs) AS u(seq) LEFT JOIN leasequeue_member m ON m.seq = u.seq
    GROUP BY x.seqs, x.queue_id HAVING bool_and(m.seq IS NULL AND u.seq NOT IN (SELECT seq FROM turns))
    UNION ALL
    SELECT 'too_many_slots', 0, min(m.queue_id), NULL, NULL, NULL, NULL, min(l.name), min(k.key)
    FROM leasequeue_member m JOIN leasequeue_limitkey k ON k.id = m.key JOIN leasequeue_limit l ON l.id = k.limit_id
    WHERE m.taken AND k.id NOT IN (SELECT key FROM keyed) GROUP BY k.id, l.concurrency HAVING count(*) > l.concurrency
)
SELECT count(*) OVER (), difference, seq, queue_id, jsonb_strip_nulls(jsonb_build_object('limit', name, 'key',
    key))::text,
    jsonb_strip_nulls(jsonb_build_object('taken', taken, 'waits', waits, 'pending', pending, 'state', state))::text
FROM differences WHERE difference IS NOT NULL ORDER BY differences.difference, differences.seq LIMIT %(size)s::int
