"""The JSON Schema of a pod file: Compose's own, with ``x-claw`` in it at the pod
and at each service (decision 0022).

Rules. ``x-claw`` is derived from the grammar's shapes. It is about one place at a time: what
relates places (a service that must exist, ``...`` twice) is for ``claw check``. Everything that the
grammar takes, it takes. The same bytes each time.
"""

import json
from importlib import resources

from claw_compile.grammar.pod_file import POD, SERVICE
from claw_compile.grammar.shapes import Schema

COMPOSE_SPEC = "compose-spec.json"


def editor_schema() -> Schema:
    schema: Schema = json.loads(
        resources.files(__package__).joinpath(COMPOSE_SPEC).read_text(encoding="utf-8")
    )
    del schema["$id"]
    schema["title"] = "A pod: Compose, and what its agents may do"
    schema["description"] = "A Compose file with x-claw blocks, as claw compile takes it."
    schema["required"] = ["x-claw"]
    schema["properties"]["x-claw"] = {"$ref": "#/definitions/claw_pod"}
    schema["definitions"]["service"]["properties"]["x-claw"] = {
        "$ref": "#/definitions/claw_service"
    }
    pod = "What the agents of this pod have in common."
    service = "What this service is to the pod: an agent, or one that agents use."
    schema["definitions"]["claw_pod"] = {"description": pod, **POD.json_schema()}
    schema["definitions"]["claw_service"] = {"description": service, **SERVICE.json_schema()}
    return schema


def as_text(schema: Schema) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
