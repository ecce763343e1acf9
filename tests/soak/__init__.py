"""The soak: work under faults, judged by files that the queue has no part in. Run ``python -m tests.soak --help``."""
