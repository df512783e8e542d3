"""The page of an API, made from its description in OpenAPI: nothing is loaded, and nothing runs in the browser."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from markupsafe import Markup, escape

from showtell.reports.base import content_policy, render_page, resource

STYLE = "api_page.css"


def api_page(content: Mapping[str, Any]) -> str:
    """The page.

    Args:
        content: the description, in OpenAPI 3.1.
    """
    return render_page(
        "api_page.html.j2",
        f"The API of {content['info']['title']}",
        styles=[resource(STYLE)],
        about=[_text(part) for part in content["info"].get("description", "").split("\n\n")],
        version=content["info"]["version"],
        operations=list(_operations(content)),
        names=set(content["components"]["schemas"]),
        shapes=[
            {
                "name": name,
                "about": _text(schema.get("description", "")),
                "rows": _rows(schema.get("properties", {}), schema.get("required", ())),
            }
            for name, schema in content["components"]["schemas"].items()
        ],
    )


def api_policy() -> str:
    """The Content-Security-Policy of the page, for a header."""
    return f"{content_policy(_style())}; frame-ancestors 'none'"


def _style() -> str:
    return "\n".join(resource(name) for name in ("base.css", STYLE))


def _operations(content: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    schemas = content["components"]["schemas"]
    for path, methods in content["paths"].items():
        for method, operation in methods.items():
            body = operation.get("requestBody", {})
            kinds = body.get("content", {})
            schema = next((_resolved(one.get("schema", {}), schemas) for one in reversed(list(kinds.values()))), {})
            parameters = {one["name"]: one for one in operation.get("parameters", ())}
            own = {name: one for name, one in schema.get("properties", {}).items() if name not in parameters}
            yield {
                "anchor": re.sub(r"\W+", "-", f"{method}{path}").strip("-"),
                "method": method.upper(),
                "path": path,
                "summary": operation.get("summary", ""),
                "about": _text(operation.get("description", "")),
                "bodies": list(kinds),
                "body_about": body.get("description", ""),
                "parameters": [
                    {
                        "name": name,
                        "type": _type(one["schema"]),
                        "about": _text(one.get("description", "")),
                        "required": one.get("required", False),
                    }
                    for name, one in parameters.items()
                ],
                "body": _rows(own, schema.get("required", ())),
                "answers": [
                    {
                        "status": status,
                        "about": answer.get("description", ""),
                        "content": ", ".join(
                            _type(one.get("schema", {})) or kind for kind, one in answer.get("content", {}).items()
                        ),
                    }
                    for status, answer in sorted(operation["responses"].items())
                ],
            }


def _rows(properties: Mapping[str, Any], required: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "type": _type(schema),
            "about": _text(schema.get("description", "")),
            "required": name in required,
        }
        for name, schema in properties.items()
    ]


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """A schema, or the one of the components that it refers to."""
    name = _reference(schema)
    return schema if name is None else schemas[name]


def _reference(schema: Mapping[str, Any]) -> str | None:
    return schema["$ref"].rpartition("/")[2] if "$ref" in schema else None


def _type(schema: Mapping[str, Any]) -> str:
    """A schema in words: integer, 1 to 1000; list of text; Problem."""
    name = _reference(schema)
    if name is not None:
        return name
    choices = [one for key in ("anyOf", "oneOf") for one in schema.get(key, ())]
    if choices:
        return " or ".join(dict.fromkeys(_type(one) for one in choices if one.get("type") != "null"))
    if "enum" in schema or "const" in schema:
        return ", ".join(map(str, schema.get("enum", [schema.get("const")])))
    kind = {"string": "text", "array": "list"}.get(schema.get("type", ""), schema.get("type", ""))
    if schema.get("format") == "binary":
        kind = "file"
    if kind == "list" and schema.get("items"):
        kind = f"list of {_type(schema['items'])}"
    signs = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}
    bounds = [f"{sign} {schema[key]}" for key, sign in signs.items() if key in schema]
    return ", ".join([kind, *bounds]) if bounds else str(kind)


def _text(text: str) -> Markup:
    """The first paragraph of a text, with what is between backticks as code."""
    parts = " ".join(text.partition("\n\n")[0].split()).split("`")
    code = Markup("<code>{}</code>")
    return Markup("").join(code.format(part) if index % 2 else escape(part) for index, part in enumerate(parts))
