-- in_time(now): whether jobs of the claim c of a queue q may still be settled: before its deadline, or later where the
-- queue accepts that.
(q.late_ack = 'accept' OR c.deadline >= {now})
