-- is_large(job): the flag LARGE if its payload has more than 16 KiB (LARGE_BYTES): claims count its bytes. What has so
-- many without its header of 4 bytes when it is compressed is not decompressed for that.
{LARGE} * (COALESCE(GREATEST(pg_column_size({job}.data), pg_column_size({job}.meta), pg_column_size({job}.body)),
    0) - 4 > 16384
    OR {bytes({job})} > 16384)::int
