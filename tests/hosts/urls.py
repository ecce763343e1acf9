"""The test project's addresses, and a page that enqueues."""

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.urls import include, path

from django_leasequeue.models import Job
from testproject.urls import urlpatterns as usual
from tests.hosts.tasks import add

#: Jobs that the page enqueues: more than it sends other statements.
PAGE_JOBS = 20


def enqueue(request: HttpRequest) -> HttpResponse:
    for _ in range(PAGE_JOBS):
        add.enqueue(1, 1)
    return HttpResponse(f"<html><body>{Job.objects.count()} jobs</body></html>")


urlpatterns = [path("enqueue/", enqueue), *usual]
if "debug_toolbar" in settings.INSTALLED_APPS:
    from debug_toolbar.toolbar import debug_toolbar_urls

    urlpatterns += debug_toolbar_urls()
if "grappelli" in settings.INSTALLED_APPS:
    urlpatterns += [path("grappelli/", include("grappelli.urls"))]
