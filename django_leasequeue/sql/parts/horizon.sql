-- horizon(): the number in the lease log below which every transaction has ended.
((leasequeue_epoch() << {TXID_BITS}) + pg_snapshot_xmin(pg_current_snapshot())::text::bigint)
