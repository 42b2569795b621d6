"""The JSON Schema of a pod file: Compose's own, with ``x-claw`` at the pod and at each service.

See decision 0022.

Rules. ``x-claw`` is derived from the grammar's shapes, and takes everything that the grammar takes.
It describes one place at a time: what relates places (a service that must exist, ``...`` twice) is
for ``claw check``. It has the same bytes each time.
"""

import json
from importlib import resources

from claw_compile.grammar.pod_file import POD, SERVICE
from claw_compile.grammar.shapes import Schema

COMPOSE_SPEC = "compose-spec.json"


def editor_schema() -> Schema:
    """Return the schema as data."""
    compose = resources.files(__package__).joinpath(COMPOSE_SPEC).read_text(encoding="utf-8")
    schema: Schema = json.loads(compose)

    # It is not Compose's any more.
    del schema["$id"]
    schema["title"] = "A pod: Compose, and what its agents may do"
    schema["description"] = "A Compose file with x-claw blocks, as claw compile takes it."
    schema["required"] = ["x-claw"]

    definitions = schema["definitions"]
    schema["properties"]["x-claw"] = {"$ref": "#/definitions/claw_pod"}
    definitions["service"]["properties"]["x-claw"] = {"$ref": "#/definitions/claw_service"}
    pod = "What the agents of this pod have in common."
    service = "What this service is to the pod: an agent, or one that agents use."
    definitions["claw_pod"] = {"description": pod, **POD.json_schema()}
    definitions["claw_service"] = {"description": service, **SERVICE.json_schema()}
    return schema


def as_text(schema: Schema) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
