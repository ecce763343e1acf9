"""An app of a host that is as rude as its tasks: receivers that block, duties that fail, a backend that hangs."""

#: The folder of files that the soak writes; only in processes that it starts.
FOLDER = "RUDE_FOLDER"
#: The file that says how the duty fails, and the one that lets the leader stop itself.
HOW, STOP = "duty", "stop"
LEDGER = "CREATE TABLE rude_ledger (id bigserial PRIMARY KEY, term bigint)"
