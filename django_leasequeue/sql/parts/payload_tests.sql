-- payload_tests(job): whether the payload of a job, k, passes the tests of dead_match.sql: roots, paths, equal, jsons,
-- words.
(%(paths)s::text[] = '{}' OR NOT EXISTS (
    SELECT FROM ROWS FROM (unnest(%(roots)s::text[]), unnest(%(paths)s::text[]), unnest(%(equal)s::bool[]),
        unnest(%(jsons)s::text[]), unnest(%(words)s::text[])) AS p(root, path, equal, json, word)
    CROSS JOIN LATERAL (SELECT leasequeue_jsonb(CASE p.root WHEN 'meta' THEN k.meta ELSE k.data END) AS doc
        FROM {job} OFFSET 0) d
    WHERE p.equal IS DISTINCT FROM (COALESCE(d.doc #> p.path::text[] = p.json::jsonb, false)
        OR COALESCE(d.doc #>> p.path::text[] = p.word, false))))
