"""The addresses of the benchmark's HTTP servers: the door alone."""

from django.urls import include, path

urlpatterns = [path("v0/", include("django_leasequeue.http.topics.urls"))]
