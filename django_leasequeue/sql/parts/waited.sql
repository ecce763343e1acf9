-- waited(now, ready_at): milliseconds that a job was ready before its claim, at most 24 days.
LEAST(GREATEST(date_part('epoch', {now} - {ready_at}) * 1000, 0), 2073600000)::int
