"""The URLs of a host that has views of its own below the doors' prefix."""

from django.http import HttpRequest, HttpResponse
from django.urls import include, path
from rest_framework.response import Response
from rest_framework.views import APIView

from django_leasequeue.http.views import not_found


def report(request: HttpRequest) -> HttpResponse:
    return HttpResponse("the host's")


class HostView(APIView):
    authentication_classes = []

    def get(self, request: HttpRequest) -> Response:
        return Response("the host's")


urlpatterns = [
    path("v0", not_found),
    path("v0/report", report),
    # The host's view has the address of one of the doors'.
    path("v0/topics/special", HostView.as_view()),
    path("v0/", include("django_leasequeue.http.topics.urls")),
    path("v1/", include("django_leasequeue.http.zaqar.urls")),
]
