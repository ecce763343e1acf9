"""The URLs of a host that has the metrics."""

from django.urls import include, path

urlpatterns = [path("", include("django_leasequeue.http.metrics.urls"))]
