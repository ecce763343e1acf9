"""The addresses: ``path("v0/dead-letters", include("django_leasequeue.api.triage.urls"))``, before those of ``v0/``."""

from __future__ import annotations

from django.urls import path

from .views import GroupsView, LettersView, LetterView

app_name = "leasequeue_triage"

urlpatterns = [
    path("", LettersView.as_view(), name="letters"),
    path("/groups", GroupsView.as_view(), name="groups"),
    path("/<int:seq>", LetterView.as_view(), name="letter"),
]
