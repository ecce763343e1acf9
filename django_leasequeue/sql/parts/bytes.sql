-- bytes(job): of a payload.
COALESCE(octet_length({job}.data::text), 0) + COALESCE(octet_length({job}.meta::text),
    0) + COALESCE(octet_length({job}.body), 0)
