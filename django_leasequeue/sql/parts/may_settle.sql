-- may_settle(now): whether the caller may settle jobs of the claim c of a queue q: it holds the claim, in time, and
-- speaks of its queue. (IS TRUE: no planner may go by the index of the node, through all of its claims.)
(c.node = %(node)s::text) IS TRUE AND q.project = %(project)s AND (%(queue)s::text IS NULL OR q.name = %(queue)s::text)
        AND {in_time({now})}
