-- Purpose: connections of clients to this database.
SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND datname = current_database()
