-- since(queue, kind): the floor of a kind of times: nothing of the queue is due, or ends, before.
'epoch'::timestamptz + interval '1 us' * {floor({queue}, {kind}, 0)}
