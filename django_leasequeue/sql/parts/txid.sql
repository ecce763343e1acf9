-- txid(): this transaction's number in the lease log: above those of all earlier epochs (a restored database begins
-- one).
((leasequeue_epoch() << {TXID_BITS}) + pg_current_xact_id()::text::bigint)
