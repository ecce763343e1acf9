"""The driver that is killed: a small Spark without Django that streams the log into bronze, or runs the pipeline."""

import os
import sys
import time

from psycopg import conninfo
from pyspark.errors import PySparkException

from django_leasequeue import spark
from django_leasequeue.exceptions import LeaseQueueError
from django_leasequeue.spark import bronze, pipeline
from django_leasequeue.spark.layout import Lake

CONSUMER = "kills"
#: Events of a batch: few, so that kills meet many of them.
BATCH = 200
#: What it prints when it has a session, and when a run broke off.
BEGINS, BROKE_OFF = "begins", "broke off: "


def main(path: str, way: str, format: str) -> None:
    """Stream (``bronze``) or run the pipeline (``all``) until somebody ends this; ``once``: bronze and silver, once."""
    source = {name: str(value) for name, value in conninfo.conninfo_to_dict(os.environ["DATABASE_URL"]).items()}
    session = spark.session(
        CONSUMER, master="local[1]", memory="512m", niceness=0,
        conf={
            "spark.sql.shuffle.partitions": "1",
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )  # fmt: skip
    lake = Lake(session, path, format)
    print(BEGINS, flush=True)
    over = False
    while not over:
        try:
            if way == "all":
                pipeline.run(lake, source, consumer=CONSUMER, batch=BATCH)
            else:
                bronze.ingest(lake, source, consumer=CONSUMER, batch=50 * BATCH if way == "once" else BATCH)
            if way == "once":
                pipeline.refine(lake)
                over = True
        except (LeaseQueueError, PySparkException) as error:
            # PostgreSQL is down.
            print(f"{BROKE_OFF}{error}".splitlines()[0], flush=True)
            time.sleep(0.2)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
