-- Purpose: mark a detached partition for retention to drop.
-- Names: partition. Literals: mark.
COMMENT ON TABLE {partition} IS {mark}
