"""Extension of mkdocstrings: signatures as callers see them."""

from typing import Any

import griffe


class AsCalled(griffe.Extension):
    """What a method written as steps returns; options that are explained one by one in place of ``**options``."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        returns = func.returns
        if isinstance(returns, griffe.ExprSubscript) and str(returns.left) in ("Steps", "Statements"):
            func.returns = returns.slice
        explained = func.docstring.value if func.docstring else ""
        for parameter in list(func.parameters):
            options = parameter.annotation
            is_unpacked = isinstance(options, griffe.ExprSubscript) and str(options.left) == "Unpack"
            if is_unpacked and f"{parameter.name}:" not in explained:
                del func.parameters[parameter.name]
                for name, field in func.modules_collection[options.slice.canonical_path].all_members.items():
                    kind = griffe.ParameterKind.keyword_only
                    func.parameters.add(griffe.Parameter(name, annotation=field.annotation, kind=kind, default="..."))
