-- renumbered(number, jobs): the new job number of rows of these jobs. (width_bucket finds a number's place in a
-- sorted array: no planner makes pairs of all rows and all jobs.)
(ARRAY(SELECT {number} FROM {jobs} ORDER BY seq))[width_bucket(seq, ARRAY(SELECT seq FROM {jobs} ORDER BY seq))]
