-- Purpose: the values of a job's steps in order, a page at a time.
-- Parameters: seq, after (the place of the last one before), size, bytes (of the values; the first step always fits).
-- Index: leasequeue_jobstep_pkey.
-- Pages: 20 + 3 a row
SELECT p.name, p.value, p.number, p.undo FROM (
    SELECT s.name, s.value::text, s.number, s.undo, sum(octet_length(s.value::text)) OVER w AS bytes,
        row_number() OVER w AS place
    FROM (SELECT * FROM leasequeue_jobstep s WHERE s.seq = %(seq)s::bigint AND s.number > %(after)s::int
        AND s.value IS NOT NULL
        ORDER BY s.number, s.name LIMIT %(size)s::int) s
    WINDOW w AS (ORDER BY s.number, s.name)) p
WHERE p.bytes <= %(bytes)s::bigint OR p.place = 1 ORDER BY p.place
