"""Extension of mkdocstrings: types of methods as callers see them."""

from typing import Any

import griffe


class Returned(griffe.Extension):
    """Methods are written once for sync and async code, as steps: what they return is what the steps end with."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        returns = func.returns
        if isinstance(returns, griffe.ExprSubscript) and str(returns.left) in ("Steps", "Statements"):
            func.returns = returns.slice
