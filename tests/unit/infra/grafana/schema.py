"""What of Grafana's dashboard model ours have to be: written from its published JSON model, strict where a wrong value
would show an empty panel and no error."""

SOURCE = {"type": "object", "additionalProperties": False, "required": ["type", "uid"], "properties": {
    "type": {"const": "prometheus"}, "uid": {"const": "${datasource}"}}}
PLACE = {"type": "object", "additionalProperties": False, "required": ["x", "y", "w", "h"], "properties": {
    "x": {"type": "integer", "minimum": 0, "maximum": 23}, "y": {"type": "integer", "minimum": 0},
    "w": {"type": "integer", "minimum": 1, "maximum": 24}, "h": {"type": "integer", "minimum": 1}}}
TEXT = {"type": "string", "minLength": 1}
TARGET = {"type": "object", "additionalProperties": False, "required": ["refId", "datasource", "expr", "legendFormat"],
          "properties": {"refId": {"type": "string", "pattern": "^[A-Z]$"}, "datasource": SOURCE, "expr": TEXT,
                         "legendFormat": TEXT}}
UNITS = ["s", "short", "none", "percentunit", "reqps", "ops", "bytes", "currencyUSD"]
STEP = {"type": "object", "additionalProperties": False, "required": ["color", "value"], "properties": {
    "color": {"enum": ["green", "red"]}, "value": {"type": ["number", "null"]}}}
FIELD = {"type": "object", "required": ["defaults", "overrides"], "properties": {"defaults": {
    "type": "object", "required": ["unit", "thresholds", "noValue"], "properties": {
        "unit": {"enum": UNITS}, "noValue": {"const": "\N{EN DASH}"},
        "thresholds": {"type": "object", "required": ["mode", "steps"], "properties": {
            "mode": {"const": "absolute"},
            "steps": {"type": "array", "minItems": 1, "items": STEP,
                      "prefixItems": [{"properties": {"value": {"const": None}}}]}}}}}}}
ROW = {"type": "object", "required": ["id", "type", "title", "gridPos", "collapsed", "panels"], "properties": {
    "type": {"const": "row"}, "title": {"type": "string", "minLength": 1}, "gridPos": PLACE,
    "collapsed": {"const": False}, "panels": {"const": []}}}
PANEL = {"type": "object", "additionalProperties": False,
         "required": ["id", "type", "title", "description", "gridPos", "datasource", "targets", "fieldConfig",
                      "options"],
         "properties": {
             "id": {"type": "integer", "minimum": 1}, "type": {"enum": ["timeseries", "stat"]},
             "title": {"type": "string", "minLength": 1, "maxLength": 50},
             "description": {"type": "string", "pattern": r"\.$"}, "gridPos": PLACE, "datasource": SOURCE,
             "targets": {"type": "array", "minItems": 1, "maxItems": 10, "items": TARGET},
             "fieldConfig": FIELD, "options": {"type": "object"}}}
VARIABLE = {"type": "object", "required": ["name", "type"], "properties": {
    "name": {"type": "string", "pattern": "^[a-z]+$"}, "type": {"enum": ["datasource", "query"]}}}
DASHBOARD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": False,
    "required": ["uid", "title", "description", "schemaVersion", "templating", "panels", "time", "refresh"],
    "properties": {
        "uid": {"type": "string", "pattern": "^meridian-[a-z]+$", "maxLength": 40},
        "title": {"type": "string", "pattern": "^Meridian: "}, "description": {"type": "string", "minLength": 1},
        "tags": {"const": ["meridian"]}, "schemaVersion": {"type": "integer", "minimum": 36},
        "version": {"type": "integer"}, "editable": {"type": "boolean"}, "graphTooltip": {"enum": [0, 1, 2]},
        "refresh": {"type": "string", "pattern": r"^\d+s$"}, "timezone": {"const": "utc"},
        "time": {"type": "object", "required": ["from", "to"]},
        "templating": {"type": "object", "required": ["list"], "properties": {
            "list": {"type": "array", "minItems": 1, "items": VARIABLE,
                     "contains": {"properties": {"name": {"const": "datasource"}, "type": {"const": "datasource"}}}}}},
        "panels": {"type": "array", "minItems": 2, "items": {
            "if": {"properties": {"type": {"const": "row"}}}, "then": ROW, "else": PANEL}}}}
