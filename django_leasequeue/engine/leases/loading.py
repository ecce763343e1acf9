"""Payloads of leased jobs that stand in a storage."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from ...exceptions import LargePayloadLost, LargeStorageError, LeaseQueueError, PayloadAway
from .. import payloads
from ..operation import Statements, operation
from ..rows import Failure, LeasedJob, Release
from .settle import release

logger = logging.getLogger("django_leasequeue")

#: Bytes of payload in one answer; the first job always fits.
MAX_CLAIM_BYTES = 16 * 1024 * 1024

#: The type and the fingerprint of the failure of an attempt whose payload was lost.
_LOST = f"{LargePayloadLost.__module__}.{LargePayloadLost.__qualname__}"


def load_steps(jobs: Sequence[LeasedJob], node: str, project: str) -> Statements[list[LeasedJob]]:
    """Return leased jobs with the payloads that stand in a storage, 16 MiB of these at most.

    What is beyond that goes back at once, and what stands in a storage that is away after 10 s: neither counts
    as a delivery. A payload that is lost is the failure of its job's attempt.
    """
    count = payloads.fitting(jobs, MAX_CLAIM_BYTES)
    back = [Release(job.seq, job.token, 0) for job in jobs[count:]]
    failed: list[Release] = []
    loaded: list[LeasedJob] = []
    away: LeaseQueueError | None = None
    for job, found in zip(jobs, (yield from payloads.try_steps(jobs[:count])), strict=False):
        if isinstance(found, LargePayloadLost):
            failed.append(Release(job.seq, job.token, failure=Failure(_LOST, str(found), fingerprint=_LOST)))
        elif isinstance(found, LeaseQueueError):
            away = found
            back.append(Release(job.seq, job.token, PayloadAway.back_after_ms))
        else:
            loaded.append(found)
    if back:
        yield from release(back, node, project=project, unstarted=True)
    if failed:
        yield from release(failed, node, project=project)
    if away is not None and not loaded:
        raise LargeStorageError(str(away), away)
    return loaded


@operation
def load_hands(
    hands: Sequence[Sequence[LeasedJob]], nodes: Sequence[str], *, project: str = ""
) -> Statements[list[list[LeasedJob]]]:
    """Return the jobs of several claimers with the payloads that stand in a storage; see ``load_steps``."""
    loaded: list[list[LeasedJob]] = []
    for jobs, node in zip(hands, nodes, strict=True):
        try:
            loaded.append((yield from load_steps(jobs, node, project)) if payloads.any_large(jobs) else list(jobs))
        except LargeStorageError as error:
            logger.warning("Jobs went back, their payloads cannot be read: %s", error)
            loaded.append([])
    return loaded
