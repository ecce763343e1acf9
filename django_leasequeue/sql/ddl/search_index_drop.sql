-- Purpose: drop an index for searches; writers go on meanwhile.
-- Names: index.
DROP INDEX CONCURRENTLY IF EXISTS {index}
