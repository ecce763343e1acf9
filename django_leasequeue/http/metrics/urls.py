"""The address: ``path("", include("django_leasequeue.http.metrics.urls"))`` gives ``/metrics``."""

from __future__ import annotations

from django.urls import path

from .views import MetricsView

app_name = "leasequeue_metrics"

urlpatterns = [path("metrics", MetricsView.as_view(), name="metrics")]
