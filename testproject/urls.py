"""URLs of the demo and test project."""

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path("v0/", include("django_leasequeue.api.topics.urls")),
]
