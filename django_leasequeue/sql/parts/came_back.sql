-- came_back(jobs): note on jobs when they were claimed first (claimed_at; null: not noted), and the places at the back
-- of the queue. By place in arrays: a join may read all the jobs again for each of them.
UPDATE leasequeue_job j SET first_claimed_at = COALESCE(j.first_claimed_at, v.ats[array_position(v.seqs, j.seq)]),
    position = COALESCE(v.positions[array_position(v.seqs, j.seq)], j.position)
FROM (SELECT array_agg({jobs}.seq) AS seqs, array_agg({jobs}.claimed_at) AS ats, array_agg(back.position) AS positions
    FROM {jobs} LEFT JOIN back ON back.seq = {jobs}.seq WHERE {jobs}.first_claimed_at IS NULL
        AND {jobs}.claimed_at IS NOT NULL
        OR {jobs}.state = {READY} AND {jobs}.requeue = 'back') v
WHERE j.seq = ANY (v.seqs)
