"""The addresses: mount them with ``path("v0/", include("django_leasequeue.http.topics.urls"))``.

What else begins with that prefix stands before them: these answer 404 to every other address below it.
"""

from django.urls import path, register_converter
from django.urls.converters import StringConverter

from ...conf.loglines import redact_access_logs
from ..views import not_found
from .catalog import TopicsView
from .leases import AckView, ClaimView, ExtendView, NackView
from .records import DiffView, DropView, TopicAddressView
from .steps import EventView, StepsView, StepView, SuspendView
from .streams import WatchesView, WatchStreamView, WorkView

app_name = "leasequeue_topics"


class TextConverter(StringConverter):
    regex = "(?s:.+)"  # any text, slashes and line ends included


register_converter(TextConverter, "leasequeue_text")

# Where there are event streams there may be tokens in addresses.
redact_access_logs()

urlpatterns = [
    # The busiest first: they are tried in order.
    path("topics/<str:topic>/claim", ClaimView.as_view(), name="claim"),
    path("topics/<str:topic>/ack", AckView.as_view(), name="ack"),
    path("topics/<str:topic>", TopicAddressView.as_view(), name="topic"),
    path("topics", TopicsView.as_view(), name="topics"),
    path("topics/<str:topic>/diff", DiffView.as_view(), name="diff"),
    path("topics/<str:topic>/delete", DropView.as_view(), name="delete"),
    path("topics/<str:topic>/nack", NackView.as_view(), name="nack"),
    path("topics/<str:topic>/extend", ExtendView.as_view(), name="extend"),
    path("topics/<str:topic>/work", WorkView.as_view(), name="work"),
    path("topics/<str:topic>/jobs/<int:seq>/steps", StepsView.as_view(), name="steps"),
    path("topics/<str:topic>/jobs/<int:seq>/steps/<leasequeue_text:name>", StepView.as_view(), name="step"),
    path("topics/<str:topic>/jobs/<int:seq>/suspend", SuspendView.as_view(), name="suspend"),
    path("events/<leasequeue_text:event>", EventView.as_view(), name="event"),
    path("watch", WatchesView.as_view(), name="watch"),
    path("watch/<str:wid>", WatchStreamView.as_view(), name="watch-stream"),
    path("", not_found),
    path("<leasequeue_text:rest>", not_found),
]
