"""Jobs by their tags, workflows and limits, which operators only read, and the tasks that they pause."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

from django.http import HttpResponse
from rest_framework.request import Request

from ... import engine
from ...engine import WorkflowStatus, audit
from ...engine.codec import decode_cursor, encode_cursor
from ...engine.flow.figures import CAP, MAX_KEYS, MAX_LIMITS, MAX_PAGE, list_limits, workflow_queues
from ...engine.jobs.operators import change_task
from ...engine.jobs.pausing import MAX_NAME_BYTES, list_paused
from ...engine.jobs.read import MAX_TAGGED, parse_tags, tagged_jobs
from ...engine.metadata import MAX_TAGS
from ...engine.operation import steady
from ...engine.queues import routing
from ...enums import JobStatus
from ..access import READ, WRITE
from ..auth import require, require_all_topics
from ..errors import ApiError
from ..fields import Json
from ..schema import CURSOR, Parameter, page_size
from .deadletters import QUEUE_NAME, Moment, Next, ReadView, TriageView, endpoint, shown

_PAGE, _LIMITS_PAGE, _WORKFLOW_PAGE = page_size(50, MAX_TAGGED), page_size(50, MAX_LIMITS), page_size(100, MAX_PAGE)
_INK = r"[^\s\u0000-\u0020\u007f-\u00a0]"
_TAG: Json = {
    "type": "string",
    "pattern": rf"^(?![^=]*__)[A-Za-z][A-Za-z0-9_-]{{0,63}}={_INK}([^\u0000]{{0,60}}{_INK})?$",
}
_TAGS = Parameter(
    "tags",
    {"type": "array", "items": _TAG, "minItems": 1, "maxItems": MAX_TAGS},
    'Such as `customer=7`: a job has all of them. A value is a text unless it is an integer or bool; `"7"` is a text.',
    required=True,
)
_STATE = Parameter("state", {"type": "string", "enum": JobStatus.values}, "Only of this state.")
_QUEUE = Parameter("queue", QUEUE_NAME, "Only of this queue.")
_WORKFLOW = Parameter("workflow", {"type": "string", "format": "uuid"}, "The workflow's id.", where="path")


class JobRow(TypedDict):
    seq: Annotated[int, "The job's number."]
    key: Annotated[str | None, "The client's id of the job; of a task the id of its result."]
    queue: Annotated[str, "The topic that it is in."]
    task: Annotated[str | None, "The job's name."]
    state: Annotated[
        str, "`waiting`, `delayed`, `ready`, `leased`, `completed`, `failed`, `dead`, `cancelled`, `expired`."
    ]
    tag: Annotated[str | None, "The job's tag."]
    tags: Annotated[dict[str, Any], "Its tags."]
    deliveries: Annotated[int, "How often it was claimed."]
    enqueued_at: Annotated[Moment, "When it was enqueued."]
    available_at: Annotated[str | None, {"format": "date-time"}, "When it became ready, or will be."]
    started_at: Annotated[str | None, {"format": "date-time"}, "When the worker that has it, or ended it, claimed it."]
    finished_at: Annotated[str | None, {"format": "date-time"}, "When it ended, or became a dead letter."]
    worker: Annotated[str | None, "Who has it, or ended it."]
    error_type: Annotated[str | None, "Class of its last error."]
    error: Annotated[str | None, "The beginning of its last error."]


class Jobs(TypedDict):
    """Jobs, the newest first."""

    jobs: Annotated[list[JobRow], "The page."]
    next_cursor: Next


class JobsView(TriageView):
    @endpoint(
        "listJobs",
        "Find jobs by their tags",
        tag="jobs",
        scopes=[READ],
        description=(
            "Jobs from their enqueue until they are forgotten, the newest first, without payloads. A page looks at"
            " 1,000 jobs with these tags: with a queue or a state it may be short and have a next. A key"
            " with prefixes sees those of its topics."
        ),
        answers={200: Jobs},
        errors={400: ["invalid_topic"]},
        parameters=[_TAGS, _STATE, _QUEUE, _PAGE, CURSOR],
    )
    async def get(self, request: Request) -> HttpResponse:
        queue = request.GET.get("queue") or None
        require(self.access, frozenset(), queue)
        (below,) = decode_cursor(self.cursor, (int,)) or [None]
        tags, state = parse_tags(request.GET.getlist("tags")), request.GET.get("state") or None
        prefixes, size = tuple(self.access.prefixes), self.number(_PAGE)
        search = tagged_jobs(
            tags, project=self.project, queue=queue, prefixes=prefixes, state=state, below=below, size=size
        )
        jobs, below = await self.runner.run(steady(search, bitmaps=True))
        cursor = None if below is None else encode_cursor(below)
        return self.answer({"jobs": [shown(JobRow, job) for job in jobs], "next_cursor": cursor})


class WorkflowJob(TypedDict):
    seq: Annotated[int, "The job's number."]
    key: Annotated[str | None, "The client's id of the job; of a task the id of its result."]
    label: Annotated[str, "What it is called in the workflow; empty if nothing."]
    task: Annotated[str | None, "The job's name."]
    queue: Annotated[str | None, "The topic that it is in."]
    state: Annotated[
        str,
        "`waiting` (for others or for a limit), `delayed` (until its next attempt), `ready`, `running`, `completed`,"
        " `failed`, `cancelled`.",
    ]
    parents: Annotated[list[int], "Numbers of the jobs it comes after."]
    error_type: Annotated[str | None, "Class of its last error."]
    error: Annotated[str | None, "The beginning of its last error."]


class Workflow(TypedDict):
    """A workflow and a page of its jobs."""

    workflow: Annotated[str, {"format": "uuid"}, "The workflow's id."]
    name: Annotated[str, "Its name; empty if it has none."]
    state: Annotated[str, "`running`, `completed`, `failed`, `cancelled`."]
    total: Annotated[int, "How many jobs it has."]
    open: Annotated[int, "Those that have not ended."]
    completed: Annotated[int, "Those that completed."]
    failed: Annotated[int, "Those that failed for good."]
    cancelled: Annotated[int, "Those that will not start, or were taken out."]
    created_at: Annotated[Moment, "When it was enqueued."]
    ended_at: Annotated[str | None, {"format": "date-time"}, "When its last job ended."]
    jobs: Annotated[list[WorkflowJob], "The page."]
    next_cursor: Next


class LimitRow(TypedDict):
    """A limit, and what waits for it."""

    name: Annotated[str, "The limit's name."]
    concurrency: Annotated[int | None, "Jobs of a key at once; null: no limit."]
    rate: Annotated[int | None, "Jobs of a key that start in `per_ms`; null: no limit."]
    per_ms: Annotated[int | None, "The time of `rate`, in milliseconds."]
    burst: Annotated[int, "How many more may start at once."]
    fair: Annotated[bool, "Whether its keys take turns."]
    pinned: Annotated[bool, "Whether an operator has set it: the code's values wait."]
    keys: Annotated[int, "How many keys it has, up to 1,000."]
    waiting: Annotated[int, "Jobs that wait for one of these keys, up to 1,000."]
    taken: Annotated[int, "Slots of these keys that ready and running jobs have, up to 1,000."]
    capped: Annotated[bool, "Whether one of the three is more."]


class Limits(TypedDict):
    """Limits by name."""

    limits: Annotated[list[LimitRow], "The page."]
    next_cursor: Next


class WorkflowView(ReadView):
    @endpoint(
        "getWorkflow",
        "Look at a workflow",
        tag="workflows",
        scopes=[READ],
        description=(
            "How many of its jobs have ended, and its jobs, a page at a time in the order of their numbers. A key with"
            " prefixes sees the workflows whose jobs are all in its topics."
        ),
        answers={200: Workflow},
        errors={404: ["not_found"]},
        parameters=[_WORKFLOW, _WORKFLOW_PAGE, CURSOR],
    )
    async def get(self, request: Request, workflow: str) -> HttpResponse:
        size = self.number(_WORKFLOW_PAGE)
        (after,) = decode_cursor(self.cursor, (int,)) or [0]
        found = await self._find(workflow)
        nodes = await self.runner.run(engine.workflow_nodes(found.id, after=after, size=size, results=False))
        jobs = [shown(WorkflowJob, node, parents=node.parents or []) for node in nodes]
        cursor = encode_cursor(nodes[-1].seq) if len(nodes) == size else None
        said = {"workflow": workflow.lower(), "state": found.label, "jobs": jobs, "next_cursor": cursor}
        return self.answer(shown(Workflow, found, **said))

    async def _find(self, text: str) -> WorkflowStatus:
        try:
            uid = UUID(text)
        except ValueError:
            found = None
        else:
            found = await self.runner.run(engine.get_workflow(uid, project=self.project))
        # What is in another tenant's or another key's topics is not there for this one.
        if found is not None and self.access.prefixes:
            queues = await self.runner.run(workflow_queues(found.id))
            if not all(queue is not None and self.access.sees(queue) for queue in queues):
                found = None
        if found is None:
            message = f"There is no workflow {text[:80]}: it ended more than a day ago, or never was."
            raise ApiError(404, "not_found", message)
        return found


class LimitsView(ReadView):
    @endpoint(
        "listLimits",
        "List limits",
        tag="limits",
        scopes=[READ],
        description="By name, with what waits for them. Limits belong to no topic: not for keys with prefixes.",
        answers={200: Limits},
        parameters=[_LIMITS_PAGE, CURSOR],
    )
    async def get(self, request: Request) -> HttpResponse:
        require_all_topics(self.access, "read the limits")
        size = self.number(_LIMITS_PAGE)
        (after,) = decode_cursor(self.cursor, (str,)) or [""]
        found = await self.runner.run(list_limits(project=self.project, after=(self.project, after), size=size))
        rows = []
        for line in found:
            capped = line.keys > MAX_KEYS or max(line.waiting, line.taken) > CAP
            keys, waiting, taken = min(line.keys, MAX_KEYS), min(line.waiting, CAP), min(line.taken, CAP)
            rows.append(shown(LimitRow, line, keys=keys, waiting=waiting, taken=taken, capped=capped))
        cursor = encode_cursor(found[-1].name) if len(found) == size else None
        return self.answer({"limits": rows, "next_cursor": cursor})


_PATH: Json = {"type": "string", "minLength": 1, "maxLength": MAX_NAME_BYTES, "pattern": r"^[^\u0000/]+$"}
_TASK = Parameter("task", _PATH, "The import path of the task, such as `shop.tasks.pay`.", where="path")


class PausedRow(TypedDict):
    name: Annotated[str, "The import path of the task."]
    paused_at: Annotated[Moment, "Since when."]
    paused_by: Annotated[str, "The user or key that paused it; empty: the host's own code."]


class PausedTasks(TypedDict):
    """The paused tasks, by name."""

    paused_tasks: Annotated[list[PausedRow], "All of the default database, at most 1,000."]


class TaskChanged(TypedDict):
    """The task as it is now."""

    task: Annotated[str, "The import path of the task."]
    paused: Annotated[bool, "Whether none of its jobs starts."]
    changed: Annotated[bool, "False: it was so before."]


class PausedTasksView(ReadView):
    @endpoint("listPausedTasks", "List paused tasks", tag="tasks", scopes=[READ], answers={200: PausedTasks})
    async def get(self, request: Request) -> HttpResponse:
        require_all_topics(self.access, "steer tasks")
        found = await self.runner.run(list_paused(self.project))
        return self.answer({"paused_tasks": [shown(PausedRow, each) for each in found]})


class PausedTaskView(ReadView):
    http_method_names = ["put", "delete"]
    _says = partial(endpoint, tag="tasks", scopes=[READ, WRITE], answers={200: TaskChanged}, parameters=[_TASK])

    @_says("pauseTask", "Pause a task", description="No further job of it starts. The audit says which key did it.")
    async def put(self, request: Request, task: str) -> HttpResponse:
        return await self._change("pause", task)

    @_says("resumeTask", "Resume a task", description="Its jobs start again. The audit says which key did it.")
    async def delete(self, request: Request, task: str) -> HttpResponse:
        return await self._change("resume", task)

    async def _change(self, action: Literal["pause", "resume"], task: str) -> HttpResponse:
        require_all_topics(self.access, "steer tasks")
        change = partial(change_task, action, task, self.project, audit.Actor("http", username=self.access.who))
        changed = [await self.on_django(alias, change) for alias in routing.aliases()]
        return self.answer(TaskChanged(task=task, paused=action == "pause", changed=any(changed)))
