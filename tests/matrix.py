"""Modules that run on other versions of Python, Django and PostgreSQL, too: a test a statement, a door, a migration.

``.ci/run`` says which of them depend on which version; the rest of the suite runs there with ``--everything`` only.
"""

#: Without ``tests/`` and ``.py``.
MODULES = frozenset(
    {
        # Every statement, with what the planner may think of the tables; every migration, forward and back.
        "plans/test_regimes",
        "plans/test_leave_turns",
        "plans/test_lake_statements",
        "migrations/test_migrations",
        "upgrade/test_dumped",
        "models/test_constraints",
        "models/test_job",
        "models/test_json_lookups",
        "plans/test_models",
        # The engine: a way in, every way out, what it promises of time and of disk.
        "engine/test_enqueue",
        "engine/test_claim",
        "engine/test_settle",
        "engine/test_dead_letters",
        "engine/test_durability",
        "engine/test_floors",
        "engine/test_due_order",
        "engine/test_partitions",
        "engine/test_workflows",
        "engine/test_limits_by_key",
        "reaper/test_duties",
        # Django's tasks, whose documented behaviour differs from version to version.
        "tasks/test_documented_results",
        "tasks/test_documented_tasks",
        "tasks/test_enqueue",
        "tasks/test_handler",
        "tasks/test_results",
        "tasks/test_signals",
        # The other doors.
        "queue/test_queue_model",
        "queue/test_async_queue",
        "http/test_claims",
        "http/test_topics",
        "http/test_writing",
        "http/test_openapi",
        "http/zaqar/test_messages",
        "http/zaqar/test_claims",
        "http/zaqar/test_openapi",
        "admin/test_every_page",
        "admin/test_job_page",
        "admin/test_queue_pages",
        "admin/test_permissions",
        "metrics/test_page",
        "testing/test_harness",
        "worker/test_jobs",
        "worker/test_notify",
        # Spark: source, stream, sink, and the figures.
        "spark/test_source",
        "spark/test_sink",
        "spark/test_metrics",
        "spark/test_order",
    }
)

if __name__ == "__main__":
    print(*(f"tests/{module}.py" for module in sorted(MODULES)), sep="\n")
