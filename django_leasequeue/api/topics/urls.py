"""The addresses: mount them with ``path("v0/", include("django_leasequeue.api.topics.urls"))``."""

from __future__ import annotations

from django.urls import path

from ..views import not_found
from .catalog import TopicsView
from .leases import AckView, ClaimView, ExtendView, NackView
from .records import DiffView, DropView, TopicAddressView

app_name = "leasequeue_topics"

urlpatterns = [
    path("topics", TopicsView.as_view(), name="topics"),
    path("topics/<str:topic>", TopicAddressView.as_view(), name="topic"),
    path("topics/<str:topic>/diff", DiffView.as_view(), name="diff"),
    path("topics/<str:topic>/delete", DropView.as_view(), name="delete"),
    path("topics/<str:topic>/claim", ClaimView.as_view(), name="claim"),
    path("topics/<str:topic>/ack", AckView.as_view(), name="ack"),
    path("topics/<str:topic>/nack", NackView.as_view(), name="nack"),
    path("topics/<str:topic>/extend", ExtendView.as_view(), name="extend"),
    path("topics/<path:rest>", not_found),
]
