-- Purpose: write the WAL to disk up to now. A transaction that has a number and nothing else does not wait for the
--   disk, so this one writes a message without a reader.
SELECT set_config('synchronous_commit', 'local', true), pg_logical_emit_message(true, 'leasequeue', '')
