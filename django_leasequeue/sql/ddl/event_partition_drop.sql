-- Purpose: drop a detached partition.
-- Names: partition.
DROP TABLE IF EXISTS {partition}
