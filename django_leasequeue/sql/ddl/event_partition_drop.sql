-- Purpose: drop a table that is no partition any more.
-- Names: partition.
DROP TABLE IF EXISTS {partition}
