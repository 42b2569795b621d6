"""The JSON Schemas of the contract's files.

``python -m claw_contract.published`` generates them from the models.

They describe what is accepted: a reader ignores unknown keys, so the schemas allow them.
"""

import json
from pathlib import Path
from typing import Any, Final

from pydantic import TypeAdapter

from claw_contract.context_files import ContextBlocks, Feeds, Memory, ServiceAuth
from claw_contract.descriptor import Descriptor
from claw_contract.history import HistoryEntry
from claw_contract.log import LogEvent
from claw_contract.log.tool_host import ToolHostLogEvent
from claw_contract.manifest import Manifest
from claw_contract.metadata import Metadata
from claw_contract.prices import Prices
from claw_contract.providers import KeyRecord, Providers

DIRECTORY: Final = Path(__file__).parent / "schemas"
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_FILES: Final[dict[str, tuple[str, Any]]] = {
    "context-blocks": ("context-blocks.json", ContextBlocks),
    "descriptor": ("claw.describe, versions 1 and 2", Descriptor),
    "feeds": ("feeds.json", Feeds),
    "history": ("One line of history.jsonl", HistoryEntry),
    "log": ("One line of the log", LogEvent.__value__),
    "key-state": ("key-states/<digest>.json", KeyRecord),
    "memory": ("memory.json", Memory),
    "metadata": ("metadata.json", Metadata),
    "prices": ("prices.json", Prices),
    "providers": ("providers.json, versions 1 and 2", Providers),
    "service-auth": ("service-auth/<service>.json", ServiceAuth),
    "tool-host-log": ("One line of the log of claw tools serve", ToolHostLogEvent.__value__),
    "tools": ("tools.json", Manifest),
}


def schemas() -> dict[str, dict[str, Any]]:
    """Return the schemas by file name."""
    by_file: dict[str, dict[str, Any]] = {}
    for name, (title, model) in _FILES.items():
        schema = TypeAdapter(model).json_schema(by_alias=True, mode="validation")
        _unwrap_descriptions(schema)
        by_file[f"{name}.schema.json"] = {**schema, "$schema": _DRAFT, "title": title}
    return by_file


def _unwrap_descriptions(schema: Any) -> None:
    """Join the lines of each paragraph: a docstring's line breaks are no part of a schema."""
    if isinstance(schema, list):
        for item in schema:
            _unwrap_descriptions(item)

    if isinstance(schema, dict):
        description = schema.get("description")
        if isinstance(description, str):
            paragraphs = description.split("\n\n")
            schema["description"] = "\n\n".join(" ".join(each.split()) for each in paragraphs)

        for member in schema.values():
            _unwrap_descriptions(member)


def text(schema: dict[str, Any]) -> str:
    """Return the content of a schema's file."""
    return json.dumps(schema, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def publish(directory: Path = DIRECTORY) -> list[str]:
    """Write all schemas, and return the names of their files."""
    directory.mkdir(exist_ok=True)
    by_file = schemas()
    for name, schema in by_file.items():
        (directory / name).write_text(text(schema), encoding="utf-8")
    return sorted(by_file)


if __name__ == "__main__":
    publish()
