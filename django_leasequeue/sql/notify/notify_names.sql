-- Purpose: how producers reach who waits for jobs of this install: a connection of LISTEN_DSN may have another search
--   path.
-- Pages: none: constants.
-- Returns: the first key of the locks of who waits, and the channel.
SELECT {lock.listeners}, {channel.jobs}
