"""A declarative pipeline over the lease log: `spark-pipelines run` beside the spec file leasequeue_pipeline.yml.

Needs pyspark[pipelines] 4.1 or newer. Materialized views are computed in full at each run; the plain pipeline
(`manage.py leasequeue_lake run`) is the incremental one.
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from django_leasequeue.spark import metrics
from django_leasequeue.spark.bronze import with_days
from django_leasequeue.spark.layout import BRONZE
from django_leasequeue.spark.pipeline import named

spark = SparkSession.active()


@dp.table
def bronze() -> DataFrame:
    """Events as they are, exactly once."""
    return with_days(spark.readStream.format("leasequeue").option("consumer", "pipeline").schema(BRONZE).load())


@dp.materialized_view
def attempts() -> DataFrame:
    """One row per attempt."""
    return metrics.attempts(named(spark.table("bronze")))


@dp.materialized_view
def nodes() -> DataFrame:
    """Which worker is ill."""
    return metrics.node_health(spark.table("attempts"))
