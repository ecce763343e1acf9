-- Purpose: the periodic tasks of django-celery-beat with their schedules, a page at a time; columns differ by version.
-- Parameters: after (an id, exclusive), size.
-- Pages: whole tables of django-celery-beat
-- Returns: id, the row as JSON text with interval, crontab, clocked and solar (null: not its schedule).
SELECT beat.id, (to_jsonb(beat) || jsonb_build_object('interval', to_jsonb(interval_of), 'crontab', to_jsonb(crontab),
    'clocked', to_jsonb(clocked), 'solar', to_jsonb(solar)))::text AS row_json
FROM django_celery_beat_periodictask beat
LEFT JOIN django_celery_beat_intervalschedule interval_of ON interval_of.id = beat.interval_id
LEFT JOIN django_celery_beat_crontabschedule crontab ON crontab.id = beat.crontab_id
LEFT JOIN django_celery_beat_clockedschedule clocked ON clocked.id = beat.clocked_id
LEFT JOIN django_celery_beat_solarschedule solar ON solar.id = beat.solar_id
WHERE beat.id > %(after)s::bigint ORDER BY beat.id LIMIT %(size)s::int
