-- Purpose: the sealed number of a topic, without reading it (see topic_read).
-- Parameters: server, sealed, heads, marks, ends, known, as topic_read; autocommit.
-- Pages: 20
-- Returns: server, timeline, last number drawn, its mark (null: known before), oldest running transaction, place in the
--   WAL (null: all of it is on disk), sealed number that may be told, sealed number that may be told once the WAL is on
--   disk.
WITH {sealing()}
SELECT server, timeline, last, mark, oldest, place, firm, sealed, %(autocommit)s::bool AS written FROM sealing
