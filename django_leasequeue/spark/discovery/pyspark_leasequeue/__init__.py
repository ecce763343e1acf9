"""Found by Spark: ``format("leasequeue")`` works wherever this module can be imported.

Spark registers the ``DefaultSource`` of every top-level module named ``pyspark_*``.
"""

from django_leasequeue.spark.source import LeaseQueueDataSource as DefaultSource

__all__ = ["DefaultSource"]
