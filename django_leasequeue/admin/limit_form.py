"""The form of a limit's values, with the checks that every door has."""

from __future__ import annotations

from typing import Any

from django import forms

from ..engine import LimitValues
from ..exceptions import InvalidOption


class LimitForm(forms.Form):
    """The values of a limit.

    Args:
        values: as they are.
        data: what was sent.
    """

    concurrency = forms.IntegerField(
        required=False, label="Jobs of a key at once", help_text="empty: as many as there are"
    )
    rate = forms.IntegerField(required=False, label="Starts of a key in a time", help_text="empty: no limit")
    per = forms.DecimalField(
        required=False, decimal_places=3, max_digits=9, label="The time, in seconds", help_text="0.1 to 86400"
    )
    burst = forms.IntegerField(required=False, label="More starts at once", help_text="after a pause, beyond the rate")
    fair = forms.BooleanField(required=False, label="Keys take turns", help_text="needs a number of jobs at once")

    def __init__(self, values: LimitValues, data: Any = None) -> None:
        super().__init__(
            data,
            initial={
                "concurrency": values.concurrency,
                "rate": values.rate,
                "per": None if values.per_ms is None else f"{values.per_ms / 1000:g}",
                "burst": values.burst,
                "fair": values.fair,
            },
        )
        self.name = values.name
        #: What the form says, once it is valid.
        self.values: LimitValues = values

    def clean(self) -> dict[str, Any]:
        """Check the values together, as ``engine.set_limits`` will."""
        given = self.cleaned_data
        if not self.errors:
            per = given["per"]
            try:
                self.values = LimitValues(
                    self.name,
                    given["concurrency"],
                    given["rate"],
                    None if per is None else int(per * 1000),
                    given["burst"] or 0,
                    given["fair"],
                )
            except InvalidOption as error:
                raise forms.ValidationError(str(error)) from error
        return given
