"""``.claw-tools.json``, the result of MCP's ``tools/list`` → the tree of a descriptor (spec/mcp.md).

The tools keep their places; where the server listens is said by the pod (``x-claw.mcp``) or by the image's label. A tool whose
name is none of ours (MCP takes dots, and 128 characters) is left out: nobody here can rename it.
"""

from __future__ import annotations

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Checked, quoted
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode, kind
from claw_contract.names import TOOL_NAME


def as_descriptor(root: Node, mcp_path: ScalarNode) -> Checked[Node]:
    """Version 2 with the listed tools; the whole answer of JSON-RPC is taken as well as its ``result``."""
    listed = root.value("result") if isinstance(root, MapNode) and root.get("jsonrpc") is not None else root
    if not isinstance(listed, MapNode):
        at = listed.span if listed is not None else root.span
        message = f"the result of tools/list is an object, and this is {kind(listed) if listed else 'an error'}"
        return Checked(None, (codes.BAD_TOOLS_LIST.at(at, message),))
    tools, cursor = listed.get("tools"), listed.value("nextCursor")
    if tools is None or not isinstance(tools.value, ListNode):
        at = tools.value.span if tools else listed.span
        return Checked(None, (codes.BAD_TOOLS_LIST.at(at, "the result of tools/list has a list 'tools'"),))
    if cursor is not None and not (isinstance(cursor, ScalarNode) and cursor.is_null):
        message = "this is one page of several: 'nextCursor' asks for the next"
        return Checked(None, (codes.BAD_TOOLS_LIST.at(cursor.span, message),))
    top = listed.span
    path = MapNode((Entry(ScalarNode("path", mcp_path.span), mcp_path),), mcp_path.span)
    entries = (
        Entry(ScalarNode("version", top), ScalarNode("2", top, plain=True)),
        Entry(ScalarNode("mcp", mcp_path.span), path),
        Entry(tools.key, ListNode(tuple(each for each in tools.value.items if _name(each) is None), tools.value.span)),
    )
    names = (name for each in tools.value.items if (name := _name(each)) is not None)
    left_out = (codes.TOOL_LEFT_OUT.at(name.span, f"the tool {quoted(name.text)} is left out") for name in names)
    return Checked(MapNode(entries, top), tuple(left_out))


def _name(tool: Node) -> ScalarNode | None:
    """The name of a tool, if it is the name alone that keeps it out."""
    name = tool.value("name") if isinstance(tool, MapNode) else None
    return name if isinstance(name, ScalarNode) and not name.plain and not TOOL_NAME.fullmatch(name.text) else None
