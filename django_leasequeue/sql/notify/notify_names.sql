-- Purpose: how producers reach who waits for jobs of this install: a connection of LISTEN_DSN may have another search
--   path.
SELECT {lock.listeners}, {channel.jobs}
