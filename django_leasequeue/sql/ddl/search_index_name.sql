-- Purpose: note what an index is for, once its build has ended.
-- Names: index, path.
COMMENT ON INDEX {index} IS {path}
