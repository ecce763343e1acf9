-- Purpose: the sealed number of a topic, without reading it (see topic_read).
-- Parameters: server, sealed, heads, marks, ends, known, as topic_read; autocommit.
-- Pages: 20
-- Returns: a SealedView; written: whether the statement is a transaction of its own.
WITH {sealing()}
SELECT server, timeline, last, mark, oldest, place, firm, sealed, %(autocommit)s::bool AS written FROM sealing
