"""Every statement with standard parameters, or the reason why none of them can be held to a bound here."""

from . import cases_core, cases_flow, cases_queues, cases_upkeep

CASES = [*cases_core.CASES, *cases_flow.CASES, *cases_queues.CASES, *cases_upkeep.CASES]
