-- Purpose: name the epoch. Every plan that holds the old one is made anew: whoever waits for the log's lock writes the
--   new one.
-- Names: function. Literals: epoch.
CREATE OR REPLACE FUNCTION {function}() RETURNS bigint LANGUAGE sql STABLE PARALLEL SAFE RETURN {epoch}::bigint
