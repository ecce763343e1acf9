-- claim_flags(jobs): the flags of a claim with these jobs, and MIXED where they do not all have the same name.
(bit_or({jobs}.flags) & {OF_CLAIM})::int
                + CASE WHEN min({jobs}.name) IS NOT DISTINCT FROM max({jobs}.name)
                    AND count({jobs}.name) IN (0, count(*)) THEN 0 ELSE {MIXED} END
