-- Purpose: an index for searches by the payload; writers go on meanwhile.
-- Names: index, method, expression.
CREATE INDEX CONCURRENTLY {index} ON leasequeue_job USING {method} ({expression})
