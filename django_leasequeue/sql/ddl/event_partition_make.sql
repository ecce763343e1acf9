-- Purpose: a table like the lease log, to become its next partition. Takes no lock that others wait for. Rows with
--   arrays of a thousand numbers stay on their page.
-- Names: partition.
CREATE TABLE {partition} (LIKE leasequeue_leaseevent INCLUDING DEFAULTS INCLUDING CONSTRAINTS)
WITH (toast_tuple_target = 8160)
