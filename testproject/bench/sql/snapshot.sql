-- Purpose: take a snapshot, in a transaction that reads nothing of ours.
SELECT count(*) FROM pg_class
