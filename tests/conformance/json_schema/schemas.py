"""Schemas of our own, a few for each keyword: what `make test` asks a served model for."""

from typing import Any

ANSWERED: tuple[dict[str, Any], ...] = (
    {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"], "additionalProperties": False},
    {"enum": ["amber", 12, None, {"deep": [True, "x"]}]},
    {"const": {"city": 'Ωmega "quoted"', "n": -3}},
    {"type": "integer", "minimum": 17, "exclusiveMaximum": 320},
    {"type": "number", "exclusiveMinimum": -2.5, "maximum": 4, "multipleOf": 0.25},
    {"type": "string", "minLength": 2, "maxLength": 9},
    {"type": "string", "pattern": "^[A-F0-9]{4}(-[a-z]+)?$", "maxLength": 12},
    {"type": "string", "format": "date-time"},
    {"type": "string", "format": "ipv4"},
    {"type": "string", "format": "uuid"},
    {"type": ["string", "null"], "format": "date"},
    {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "minItems": 2, "maxItems": 5},
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "array",
        "prefixItems": [{"const": "row"}, {"type": "integer", "maximum": 9, "minimum": 0}, {"type": "null"}],
        "items": False,
        "minItems": 3,
    },
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "array",
        "items": [{"enum": ["a", "b"]}, {"type": "boolean"}],
        "additionalItems": False,
        "minItems": 1,
    },
    {
        "type": "object",
        "patternProperties": {"^k[0-9]$": {"type": "boolean"}},
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 3,
    },
    {"type": "object", "additionalProperties": {"enum": [0, 1]}, "required": ["left"], "maxProperties": 2},
    {"anyOf": [{"type": "integer", "minimum": 0, "maximum": 7}, {"type": "string", "maxLength": 3}]},
    {"oneOf": [{"const": "yes"}, {"type": "array", "items": {"type": "null"}, "maxItems": 2}]},
    {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "integer", "minimum": 0}}, "required": ["a"]},
            {"properties": {"b": {"maximum": 30}}, "required": ["b"]},
        ],
        "properties": {"a": {"maximum": 50}, "b": {"type": "integer", "minimum": 10}},
        "additionalProperties": False,
    },
    {
        "$defs": {"leaf~node": {"enum": [1, 2, [3]]}},
        "type": "object",
        "properties": {
            "left": {"$ref": "#/$defs/leaf~0node"},
            "right": {"anyOf": [{"$ref": "#/$defs/leaf~0node"}, {"type": "null"}]},
        },
        "required": ["left", "right"],
        "additionalProperties": False,
    },
)
"""All of them are enforced, and their answers are short."""

REFUSED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"type": "object", "properties": {"a": {"not": {"type": "null"}}}}, "/properties/a/not"),
    ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "/uniqueItems"),
    ({"anyOf": [{"type": "null"}, {"if": {"minimum": 3}, "then": {"maximum": 9}}]}, "/anyOf/1/if"),
    ({"$defs": {"p": {"type": "string", "pattern": "(?<=a)b"}}, "$ref": "#/$defs/p"}, "/$defs/p/pattern"),
    ({"type": "object", "properties": {"when": {"type": "string", "format": "moon-phase"}}}, "/properties/when/format"),
    ({"items": {"$ref": "https://example.com/schema.json"}}, "/items/$ref"),
)
"""Schemas that cannot be enforced, and the place that an answer has to name."""
