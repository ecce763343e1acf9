-- Purpose: the server's clock, which is what the lease log tells times by.
SELECT clock_timestamp()
