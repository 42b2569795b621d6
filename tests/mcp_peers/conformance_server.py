"""The stdio server that the conformance suite asks for, by the official MCP SDK 2,
whose own Python runs it.

The suite calls tools, resources and prompts by name; what each must return is in the suite's
descriptions of its scenarios.
"""

from __future__ import annotations

import asyncio
import json
import warnings
from typing import Any

from mcp import types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server

warnings.simplefilter("ignore")  # the SDK warns of logging, which the newest protocol has no more

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
TEXT = {"type": "text", "text": "This is a simple text response for testing."}
IMAGE = {"type": "image", "data": PNG, "mimeType": "image/png"}
EMBEDDED = {
    "type": "resource",
    "resource": {
        "uri": "test://embedded",
        "mimeType": "text/plain",
        "text": "An embedded resource.",
    },
}
CONTENTS: dict[str, list[dict[str, Any]]] = {
    "test_simple_text": [TEXT],
    "test_image_content": [IMAGE],
    "test_audio_content": [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}],
    "test_embedded_resource": [EMBEDDED],
    "test_multiple_content_types": [TEXT, IMAGE, EMBEDDED],
    "test_tool_with_logging": [TEXT],
    "test_tool_with_progress": [TEXT],
    "test_error_handling": [
        {"type": "text", "text": "This tool intentionally returns an error for testing"}
    ],
    "test_sampling": [TEXT],
    "test_elicitation": [TEXT],
    "test_elicitation_sep1034_defaults": [TEXT],
    "test_elicitation_sep1330_enums": [TEXT],
    "json_schema_2020_12_tool": [TEXT],
}
"""Each tool, with what it returns."""
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
    "additionalProperties": False,
}
RESOURCES = {
    "test://static-text": {
        "mimeType": "text/plain",
        "text": "This is the content of the static text resource.",
    },
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched."},
}
TEMPLATE = "test://template/{id}/data"
PROMPTS: dict[str, list[str]] = {
    "test_simple_prompt": [],
    "test_prompt_with_arguments": ["arg1", "arg2"],
    "test_prompt_with_embedded_resource": ["resourceUri"],
    "test_prompt_with_image": [],
}
"""Each prompt, with its arguments."""


async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
    schemas = {"json_schema_2020_12_tool": SCHEMA}
    tools = [
        {
            "name": name,
            "description": f"The tool {name}.",
            "inputSchema": schemas.get(name, {"type": "object"}),
        }
        for name in CONTENTS
    ]
    return types.ListToolsResult.model_validate({"tools": tools})


async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
    session = context.session
    match params.name:
        case "test_tool_with_logging":
            for message in (
                "Tool execution started",
                "Tool processing data",
                "Tool execution completed",
            ):
                await session.send_log_message(
                    "info", message, related_request_id=context.request_id
                )
                await asyncio.sleep(0.05)
        case "test_tool_with_progress":
            for progress in (0, 50, 100):
                await session.report_progress(progress, 100)
                await asyncio.sleep(0.05)
        case "test_sampling":
            asked = types.SamplingMessage(
                role="user", content=types.TextContent(text=str(params.arguments))
            )
            await session.create_message([asked], max_tokens=100)
        case name if name.startswith("test_elicitation"):
            await session.elicit_form(
                "A word?", {"type": "object", "properties": {"word": {"type": "string"}}}
            )
    is_error = params.name == "test_error_handling"
    return types.CallToolResult.model_validate(
        {"content": CONTENTS[params.name], "isError": is_error}
    )


async def list_resources(_context: Any, _params: Any) -> types.ListResourcesResult:
    resources = [
        {"uri": uri, "name": uri.removeprefix("test://"), "mimeType": content["mimeType"]}
        for uri, content in RESOURCES.items()
    ]
    return types.ListResourcesResult.model_validate({"resources": resources})


async def list_templates(_context: Any, _params: Any) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult.model_validate(
        {
            "resourceTemplates": [
                {"uriTemplate": TEMPLATE, "name": "template", "mimeType": "application/json"}
            ]
        }
    )


async def read_resource(
    _context: Any, params: types.ReadResourceRequestParams
) -> types.ReadResourceResult:
    uri = str(params.uri)
    data = {
        "id": uri.split("/")[-2],
        "templateTest": True,
        "data": f"Data for ID: {uri.split('/')[-2]}",
    }
    content = RESOURCES.get(uri, {"mimeType": "application/json", "text": json.dumps(data)})
    return types.ReadResourceResult.model_validate({"contents": [{"uri": uri} | content]})


async def accept(_context: Any, _params: Any) -> types.EmptyResult:
    return types.EmptyResult()


async def list_prompts(_context: Any, _params: Any) -> types.ListPromptsResult:
    prompts = [
        {
            "name": name,
            "description": f"The prompt {name}.",
            "arguments": [{"name": argument, "required": True} for argument in arguments],
        }
        for name, arguments in PROMPTS.items()
    ]
    return types.ListPromptsResult.model_validate({"prompts": prompts})


async def get_prompt(_context: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    contents: list[dict[str, Any]] = [
        {"type": "text", "text": f"A prompt with {params.arguments}."}
    ]
    if params.name == "test_prompt_with_image":
        contents.insert(0, IMAGE)
    if params.name == "test_prompt_with_embedded_resource":
        uri = (params.arguments or {})["resourceUri"]
        resource = {
            "uri": uri,
            "mimeType": "text/plain",
            "text": "Embedded resource content for testing.",
        }
        contents.insert(0, {"type": "resource", "resource": resource})
    return types.GetPromptResult.model_validate(
        {"messages": [{"role": "user", "content": content} for content in contents]}
    )


async def complete(_context: Any, _params: Any) -> types.CompleteResult:
    return types.CompleteResult.model_validate(
        {"completion": {"values": ["paris", "park"], "total": 2, "hasMore": False}}
    )


SERVER = Server(
    "conformance",
    version="1.0.0",
    on_list_tools=list_tools,
    on_call_tool=call_tool,
    on_list_resources=list_resources,
    on_list_resource_templates=list_templates,
    on_read_resource=read_resource,
    on_subscribe_resource=accept,
    on_unsubscribe_resource=accept,
    on_list_prompts=list_prompts,
    on_get_prompt=get_prompt,
    on_completion=complete,
    on_set_logging_level=accept,
)


async def main() -> None:
    async with stdio_server() as (read, write):
        await SERVER.run(read, write, SERVER.create_initialization_options())


if __name__ == "__main__":
    asyncio.run(main())
