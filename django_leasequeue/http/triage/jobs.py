"""Jobs by their tags, for operators."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from django.http import HttpResponse
from rest_framework.request import Request

from ...engine.codec import decode_cursor, encode_cursor
from ...engine.jobs.read import MAX_TAGGED, parse_tags, tagged_jobs
from ...engine.operation import steady
from ...engine.tags import MAX_TAGS
from ...models.job import JobStatus
from ..access import READ
from ..auth import require
from ..schema import CURSOR, Parameter, page_size
from .deadletters import Moment, Next, OfQueueView, endpoint, shown

_PAGE = page_size(50, MAX_TAGGED)
_TAGS = Parameter(
    "tags",
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_TAGS},
    'Such as `customer=7`: a job has all of them. A value is a text unless it is an integer or bool; `"7"` is a text.',
    required=True,
)
_STATE = Parameter("state", {"type": "string", "enum": JobStatus.values}, "Only of this state.")
_QUEUE = Parameter("queue", {"type": "string"}, "Only of this queue.")


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


class JobsView(OfQueueView):
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
        if queue is not None:
            require(self.access, frozenset(), queue)
        (below,) = decode_cursor(self.cursor, (int,)) or [None]
        tags, state = parse_tags(request.GET.getlist("tags")), request.GET.get("state") or None
        prefixes, size = tuple(self.access.prefixes), self.number(_PAGE)
        search = tagged_jobs(
            tags, project=self.project, queue=queue, prefixes=prefixes, state=state, below=below, size=size
        )
        jobs, below = await self.run(steady(search, bitmaps=True))
        cursor = None if below is None else encode_cursor(below)
        return self.answer({"jobs": [shown(JobRow, job) for job in jobs], "next_cursor": cursor})
