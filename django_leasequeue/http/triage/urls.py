"""The addresses: ``path("v0/", include("django_leasequeue.http.triage.urls"))``, before those of the topics."""

from __future__ import annotations

from django.urls import path

from .views import GroupsView, LettersView, LetterView

app_name = "leasequeue_triage"

urlpatterns = [
    path("dead-letters", LettersView.as_view(), name="letters"),
    path("dead-letters/groups", GroupsView.as_view(), name="groups"),
    path("dead-letters/<str:seq>", LetterView.as_view(), name="letter"),
]
