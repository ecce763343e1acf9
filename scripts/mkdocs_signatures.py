"""Extension of mkdocstrings: signatures as callers see them."""

import ast
from typing import Any

import griffe


class AsCalled(griffe.Extension):
    """What a method written as steps returns; options one by one in place of ``**options``; what ``Of`` reads."""

    def on_attribute(self, *, attr: griffe.Attribute, **_: Any) -> None:
        made = attr.value
        if isinstance(made, griffe.ExprCall) and str(getattr(made.function, "left", "")) == "Of":
            attr.annotation, attr.value = made.function.slice, None
            attr.docstring = griffe.Docstring(ast.literal_eval(str(made.arguments[1])), parent=attr)
            attr.labels.add("property")

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
