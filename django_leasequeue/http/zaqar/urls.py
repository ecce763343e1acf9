"""The addresses, with or without a last slash: ``path("v1/", include("django_leasequeue.http.zaqar.urls"))``."""

from django.urls import re_path

from . import home, messages, queues

app_name = "leasequeue-zaqar"

_QUEUE = r"queues/(?P<queue>[^/]+)"

urlpatterns = [
    re_path(r"^$", home.HomeView.as_view(), name="home"),
    re_path(r"^health/?$", home.HealthView.as_view(), name="health"),
    re_path(r"^queues/?$", queues.QueuesView.as_view(), name="queues"),
    re_path(rf"^{_QUEUE}/?$", queues.QueueView.as_view(), name="queue"),
    re_path(rf"^{_QUEUE}/metadata/?$", queues.MetadataView.as_view(), name="metadata"),
    re_path(rf"^{_QUEUE}/stats/?$", queues.StatsView.as_view(), name="stats"),
    re_path(rf"^{_QUEUE}/messages/?$", messages.MessagesView.as_view(), name="messages"),
    re_path(rf"^{_QUEUE}/messages/(?P<message>[^/]+)/?$", messages.MessageView.as_view(), name="message"),
    re_path(rf"^{_QUEUE}/claims/?$", messages.ClaimsView.as_view(), name="claims"),
    re_path(rf"^{_QUEUE}/claims/(?P<claim>[^/]+)/?$", messages.ClaimView.as_view(), name="claim"),
]
