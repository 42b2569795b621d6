"""``claw tools check``: which tools a configuration gives, and why another one is not there
(docs/spec/tools-host.md).
"""

from collections.abc import Iterator

from claw_tools.globs import matches_any
from claw_tools.host import Host, ToolState


def report_tools(host: Host) -> tuple[list[str], bool]:
    """Return a line for each tool and server, and False where one that is asked for
    can't be had.
    """
    lines = [*_built_in(host), *_provided(host), *_servers(host)]
    width = max(len(name) for name, _ in lines)
    return [f"{name:<{width}}  {text}" for name, text in lines], not any(
        each.is_fault for each in host.states
    )


def _built_in(host: Host) -> Iterator[tuple[str, str]]:
    for name in dict.fromkeys(each.tool for each in host.states):
        texts: dict[str, list[str]] = {}
        for state in host.states:
            if state.tool == name:
                texts.setdefault(_text(host, state), []).append(state.principal)
        told = (
            text if len(texts) == 1 else f"{', '.join(principals)}: {text}"
            for text, principals in texts.items()
        )
        yield name, "; ".join(told)


def _text(host: Host, state: ToolState) -> str:
    if state.reason:
        return f"not registered: {state.reason}"
    globs = next(each.globs for each in host.settings.principals if each.name == state.principal)
    form = f" ({host.containment_of(state.tool)})" if host.containment_of(state.tool) else ""
    return (
        f"registered{form}"
        if matches_any(globs, state.tool)
        else f"registered{form}, but hidden: no glob names it"
    )


def _provided(host: Host) -> Iterator[tuple[str, str]]:
    for tool, _ in host.shell.provided.tools():
        yield tool.name, "registered, by an installed package"


def _servers(host: Host) -> Iterator[tuple[str, str]]:
    for server in host.settings.mcp_servers:
        kind = (
            "internal: seen where a request asks for it by claw/allowedTools"
            if server.internal_only
            else "seen by globs"
        )
        yield f"{server.name}__*", f"an MCP server's, not started by this check; {kind}"
