-- Purpose: the channel that a resigning leader notifies: one for each schema with our tables.
-- Pages: 10
SELECT {channel.reaper}
