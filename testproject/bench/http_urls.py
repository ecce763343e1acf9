"""The addresses of the benchmark's HTTP servers: the doors of topics, and of Zaqar for its health."""

from django.urls import include, path

urlpatterns = [
    path("v0/", include("django_leasequeue.http.topics.urls")),
    path("v1/", include("django_leasequeue.http.zaqar.urls")),
]
