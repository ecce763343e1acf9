-- place_of(job): where a job stands, by one look at each place: its state (of a result + ENDED), deliveries, expires_at
-- and available_at. No row: it is leased.
SELECT {ENDED} + r.state AS state, r.deliveries, r.expires_at, NULL::timestamptz AS available_at
FROM leasequeue_jobresult r WHERE r.seq = {job}.seq
UNION ALL
SELECT {READY}, r.deliveries, r.expires_at, NULL
FROM leasequeue_ready_at({job}.queue_id, {job}.rank, COALESCE({job}.position, {job}.seq)) r
UNION ALL
SELECT {DELAYED}, w.deliveries, w.expires_at, w.available_at FROM leasequeue_delayed w WHERE w.seq = {job}.seq
UNION ALL
SELECT {DEAD}, x.deliveries, x.expires_at, NULL FROM leasequeue_deadletter x WHERE x.seq = {job}.seq AND x.in_place
UNION ALL
SELECT {RECORD}, 0, o.expires_at, NULL FROM leasequeue_record o
WHERE o.queue_id = {job}.queue_id AND o.seq = {job}.seq
LIMIT 1
