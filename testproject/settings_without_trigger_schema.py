"""The settings of a host that keeps its tables in several schemas.

django-pgtrigger then leaves the schema out of the triggers' SQL (``PGTRIGGER_SCHEMA = None``). That changes the SQL and
its hash; our migrations must be complete for such a host too.
"""

from testproject.settings import *  # noqa: F403  # the whole of the other settings, by design

PGTRIGGER_SCHEMA = None
