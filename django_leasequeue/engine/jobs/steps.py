"""Steps of running jobs: what each has returned is kept, so that a later delivery goes on behind it."""

from __future__ import annotations

from ..operation import Steps, operation

#: Steps of one job.
MAX_STEPS = 10_000
#: Characters of a step's name.
MAX_STEP_NAME = 200


@operation
def read_steps(seq: int) -> Steps[dict[str, str]]:
    """Read the steps of a job that are done: their values as JSON text, by name."""
    return dict((yield "step_list", {"seq": seq, "size": MAX_STEPS}))


@operation
def keep_step(seq: int, token: int, node: str, name: str, value: str, delivery: int) -> Steps[tuple[bool, bool]]:
    """Keep what a step has returned, in the caller's transaction if there is one.

    Args:
        seq: the job.
        token: its lease.
        node: the holder.
        name: the step.
        value: JSON text.
        delivery: which one of the job did it.

    Returns:
        Whether the lease is held, and whether this call kept it; if not, somebody has before.
    """
    ((held, kept, *_),) = yield (
        "step_put",
        {"seq": seq, "token": token, "node": node, "name": name, "value": value, "delivery": delivery},
    )
    return held, kept
