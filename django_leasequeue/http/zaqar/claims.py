"""Claims: create, query, update, release."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.response import Response

from ... import engine
from ...engine.queues.queues import QueueInfo
from ...engine.topics import messages as store
from ...engine.topics.messages import LiveClaim
from .base import READS, WRITES, ZaqarView
from .errors import bad, missing
from .ids import unseal
from .links import claim_path
from .messages import show
from .schema import CLAIM, MESSAGES, NEW_CLAIM, RENEWAL, described, limit

#: Who claims when the request names no client: the claim's id alone tells holders apart at this door.
NOBODY = "zaqar"


class ClaimsView(ZaqarView):
    """``POST /v1/queues/{queue_name}/claims``."""

    required_scopes = {"POST": READS | WRITES}

    @described(
        "claim_messages",
        "Claim messages, oldest first.",
        body=NEW_CLAIM,
        answers={201: MESSAGES, 204: None},
        query={"limit": limit(20)},
    )
    def post(self, request: Request, queue: str) -> Response:
        """Claim messages, oldest first."""
        size = self.page(request, self.limits.MAX_MESSAGES_PER_CLAIM)
        document = self.body(request, self.limits.MAX_METADATA_SIZE)
        if not isinstance(document, dict):
            raise bad("The body must be an object with the fields 'ttl' and 'grace'.")
        ttl = self.integer(document, "ttl", self.limits.MIN_CLAIM_TTL, self.limits.MAX_CLAIM_TTL)
        grace = self.integer(document, "grace", self.limits.MIN_CLAIM_GRACE, self.limits.MAX_CLAIM_GRACE)
        info = self.find(queue)
        jobs = []
        if info is not None:
            jobs = engine.run(
                engine.claim(
                    queue,
                    self.client or NOBODY,
                    size,
                    project=self.project,
                    lease_ms=ttl * 1_000,
                    grace_ms=grace * 1_000,
                )
            )
        if info is None or not jobs:
            return Response(status=204)
        held = jobs[0].claim
        # One round of a claim call makes one claim row; what a second round added is given back rather than split.
        extra = [job for job in jobs if job.claim != held]
        if extra:
            engine.run(engine.nack([job.seq for job in extra], self.client or NOBODY, project=self.project))
        live = engine.run(store.get_claim(info.id, held))
        if live is None:
            return Response(status=204)
        return Response(
            [show(message, info, self.limits, claim=held) for message in live.messages],
            status=201,
            headers={"Location": claim_path(queue, info.id, held)},
        )


class ClaimView(ZaqarView):
    """``/v1/queues/{queue_name}/claims/{claim_id}``."""

    required_scopes = {"GET": READS, "PATCH": WRITES, "DELETE": WRITES}

    def _live(self, queue: str, claim: str) -> tuple[QueueInfo, LiveClaim]:
        info = self.queue(queue)
        number = unseal("claim", info.id, claim)
        live = None if number is None else engine.run(store.get_claim(info.id, number))
        if live is None:
            raise missing("The claim does not exist or has expired.")
        return info, live

    @described("get_claim", "Read a claim and what it holds.", answers={200: CLAIM}, errors=(404,))
    def get(self, request: Request, queue: str, claim: str) -> Response:
        """Return a claim with the messages that it still holds."""
        info, live = self._live(queue, claim)
        return Response(
            {
                "href": claim_path(queue, info.id, live.id),
                "ttl": live.ttl_ms // 1_000,
                "age": live.age,
                "messages": [show(message, info, self.limits, claim=live.id) for message in live.messages],
            },
            headers={"Content-Location": request.path},
        )

    @described("renew_claim", "Renew a claim.", body=RENEWAL, answers={204: None}, errors=(404,))
    def patch(self, request: Request, queue: str, claim: str) -> Response:
        """Renew a claim: its age starts again."""
        document = self.body(request, self.limits.MAX_METADATA_SIZE)
        if not isinstance(document, dict):
            raise bad("The body must be an object with the field 'ttl'.")
        ttl = self.integer(document, "ttl", self.limits.MIN_CLAIM_TTL, self.limits.MAX_CLAIM_TTL)
        grace = None
        if "grace" in document:
            grace = self.integer(document, "grace", self.limits.MIN_CLAIM_GRACE, self.limits.MAX_CLAIM_GRACE) * 1_000
        info, live = self._live(queue, claim)
        if not engine.run(store.renew_claim(info.id, live.id, ttl * 1_000, grace)):
            raise missing("The claim does not exist or has expired.")
        return Response(status=204)

    @described("release_claim", "Release a claim.", answers={204: None})
    def delete(self, request: Request, queue: str, claim: str) -> Response:
        """Release a claim: what it still holds is free at once."""
        info = self.find(queue)
        number = None if info is None else unseal("claim", info.id, claim)
        if info is not None and number is not None:
            engine.run(store.release_claim(info.id, number, project=self.project))
        return Response(status=204)
