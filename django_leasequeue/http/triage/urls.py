"""The addresses: ``path("v0/", include("django_leasequeue.http.triage.urls"))``, before those of the topics."""

from django.urls import path

from .deadletters import DeadLetterGroupsView, DeadLettersView, DeadLetterView, RedriveView
from .jobs import JobsView, LimitsView, PausedTasksView, PausedTaskView, WorkflowView

app_name = "leasequeue_triage"

urlpatterns = [
    path("dead-letters", DeadLettersView.as_view(), name="dead-letters"),
    path("dead-letters/groups", DeadLetterGroupsView.as_view(), name="dead-letter-groups"),
    path("dead-letters/<str:seq>", DeadLetterView.as_view(), name="dead-letter"),
    path("dead-letters/<str:seq>/redrive", RedriveView.as_view(), name="dead-letter-redrive"),
    path("jobs", JobsView.as_view(), name="jobs"),
    path("workflows/<str:workflow>", WorkflowView.as_view(), name="workflow"),
    path("limits", LimitsView.as_view(), name="limits"),
    path("paused-tasks", PausedTasksView.as_view(), name="paused-tasks"),
    path("paused-tasks/<str:task>", PausedTaskView.as_view(), name="paused-task"),
]
