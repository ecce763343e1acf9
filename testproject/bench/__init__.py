"""The benchmark behind ``manage.py leasequeue_bench``: the queue's speed beside what bare SQL does in the same run."""
