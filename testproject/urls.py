"""URLs of the demo and test project."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

from django_leasequeue import progress_view
from django_leasequeue.http.views import not_found
from django_leasequeue.http.zaqar.home import HomeView
from testproject.demo import views

urlpatterns = [
    path("admin/", admin.site.urls),
    path("v0", not_found),
    path("v0/", include("django_leasequeue.http.triage.urls")),
    path("v0/", include("django_leasequeue.http.topics.urls")),
    path("v1", HomeView.as_view(schema=None)),
    path("v1/", include("django_leasequeue.http.zaqar.urls")),
    path("", include("django_leasequeue.http.metrics.urls")),
    path("demo/", views.page),
    path("demo/start/", views.start, name="demo_start"),
    path("demo/<str:id>/", views.page, name="demo_survey"),
    path("progress/<str:id>/", progress_view(views.is_mine), name="leasequeue_progress"),
    path("schema/", SpectacularAPIView.as_view(), name="schema"),
    path("schema/swagger/", SpectacularSwaggerView.as_view(url_name="schema"), name="swagger"),
]
