-- Purpose: say of a detached partition that retention is to drop it.
-- Names: partition. Literals: mark.
COMMENT ON TABLE {partition} IS {mark}
