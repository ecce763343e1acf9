-- unnoted(queue, now): whether the last noted claim of a queue is a minute old (claim_note.sql).
{floor({queue}, {floor.CLAIMED}, 0)} < (extract(epoch FROM {now}) * 1000000)::bigint - 60000000
