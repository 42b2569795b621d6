"""``tools-host``: the settings of a tools host, in the pod file or in a file of its own
(docs/spec/tools-host.md "In a pod").

Rules. The keys are those of ``toolhost.yml``: what ``tools:`` has there stands here at the top,
beside ``limits``, ``protected`` and ``audit_arguments``. Who may do what is no part of it: the
grants of the pod say it, and the compiler writes the principals. Values are checked here, where
their place is known, and carried as data; a credential is a variable or a file of the container.
"""

import re
from typing import Any

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import quote
from claw_compile.grammar import shapes
from claw_compile.grammar.access import VARIABLE_NAME
from claw_compile.grammar.pod import ToolsHost
from claw_compile.grammar.reader import Reader
from claw_compile.parsing.node import MapNode, Node, ScalarNode

type Settings = dict[str, Any]
_MAX_CALL, _MAX_SERVER_CALL, _MAX_PORT, _MAX_AT_ONCE = 300, 600, 65535, 1000
_NAMESPACE = "(?!builtin$)[a-z0-9][a-z0-9-]{0,31}"
_VOLUME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_SIZE = shapes.Text(
    "[0-9]{1,12}(?: ?[KMG]iB)?", "{shown} is no size: bytes, or a number with KiB, MiB or GiB"
)
_URL = shapes.Text(r"https?://[!-~]+", "{shown} is no URL of http or https")
_TEXTS = shapes.ListOf(shapes.Text())


def _plain(value: Any) -> Any:
    match value:
        case ScalarNode():
            return value.text
        case tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def _settings(*keys: shapes.Key[Any], **rules: Any) -> shapes.Record[Settings]:
    """Return the shape of a mapping that is carried as data."""
    return shapes.Record(keys, lambda members: _read(members, keys), **rules)


def _table(kind: str, names: str, value: shapes.Shape[Any]) -> shapes.Conversion[Any, Settings]:
    table = shapes.Table(kind, names, value)
    return shapes.Conversion(
        table, lambda _reader, pairs, _node: {name.text: _plain(each) for name, each in pairs}
    )


_ENV = shapes.Key(
    "env",
    shapes.Text(VARIABLE_NAME, "'env' is the name of a variable"),
    "A variable of the tools host.",
)
_FILE = shapes.Key("file", shapes.Text(), "A file in the tools host's container.")
_CREDENTIAL = _settings(_ENV, _FILE, either=(_ENV, _FILE))
_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_TEMPLATE = shapes.Conversion(shapes.Text(), lambda _reader, value, _node: _template(value))
_VALUE: shapes.Shape[Any] = shapes.ScalarOr[Any](_TEMPLATE, _CREDENTIAL)


def _template(value: ScalarNode) -> str:
    """Return a text that may hold a credential: ``${NAME}`` stays, for the host
    fills it in from its own environment.
    """
    return value.shown if "$" not in _REFERENCE.sub("", value.shown) else value.text


def _paired(shape: shapes.Record[Settings], **needs: str) -> shapes.Conversion[Settings, Settings]:
    """Return the shape with keys that are there only beside another one each."""

    def check(reader: Reader, settings: Settings, node: Node) -> Settings:
        for key, other in needs.items():
            if isinstance(node, MapNode) and node.get(key) and not node.get(other):
                reader.report(codes.BAD_VALUE, node.span, f"{quote(key)} goes with {quote(other)}")
        return settings

    rules = {"dependencies": {key: [other] for key, other in needs.items()}}
    return shapes.Conversion(shape, check, shape.json_schema() | rules)


def _check_times(reader: Reader, settings: Settings, node: Node) -> Settings:
    if settings.get("default_timeout_s", 1) > settings.get("max_timeout_s", _MAX_CALL):
        reader.report(codes.BAD_VALUE, node.span, "'default_timeout_s' is above 'max_timeout_s'")
    return settings


_EXEC_KEYS = _settings(
    shapes.Key("enabled", shapes.Flag(), "Register exec_shell and spawn.", default=False),
    shapes.Key("network", shapes.Flag(), "Let commands use the network.", default=False),
    shapes.Key("allow", _TEXTS, "The programs that may run; default: all."),
    shapes.Key("deny", _TEXTS, "Programs that may not run."),
    shapes.Key(
        "default_timeout_s", shapes.Limit(_MAX_CALL), "The time of a command that names none.", 30
    ),
    shapes.Key(
        "max_timeout_s", shapes.Limit(_MAX_CALL), "The longest time that a command may name.", 300
    ),
    shapes.Key(
        "environment",
        _table("variable", VARIABLE_NAME, shapes.Text()),
        "Variables of commands, beside PATH and HOME.",
    ),
)
_EXEC = shapes.Conversion(_EXEC_KEYS, _check_times)
_SPAWN = _settings(
    shapes.Key(
        "max_concurrent",
        shapes.Limit(_MAX_AT_ONCE),
        "How many processes of an agent run at once.",
        5,
    )
)
_URL_POLICY = _settings(
    shapes.Key(
        "ports",
        shapes.ListOf(shapes.Limit(_MAX_PORT)),
        "Ports that web_fetch may use; default: 80 and 443.",
    ),
    shapes.Key(
        "allow_private", _TEXTS, "Hosts with a private address that may be fetched, one by one."
    ),
    shapes.Key("allowed_domains", _TEXTS, "If there are any, no other domain is fetched."),
    shapes.Key("blocked_domains", _TEXTS, "Domains that are not fetched."),
)
_ENDPOINT = shapes.Key("endpoint", _URL, "The URL of the search engine.")
_WEB_SEARCH = _settings(
    _ENDPOINT,
    shapes.Key(
        "backend", shapes.Choice(("generic", "brave", "searxng")), "What it speaks.", "generic"
    ),
    shapes.Key("api_key", _CREDENTIAL, "Its key."),
    required=(_ENDPOINT,),
)
_WEBHOOK = shapes.Key("webhook", _URL, "The URL that a message is sent to.")
_REDIS = shapes.Key("redis", _VALUE, "The URL of a Redis or Valkey, which may be a credential.")
_CHANNEL_KEYS = _settings(
    _WEBHOOK,
    shapes.Key("token", _CREDENTIAL, "The webhook's bearer token."),
    _REDIS,
    shapes.Key("stream", shapes.Text(), "The stream that a message is added to."),
    either=(_WEBHOOK, _REDIS),
)
_CHANNEL = _paired(_CHANNEL_KEYS, token="webhook", stream="redis", redis="stream")  # noqa: S106 - names of keys
_CHANNELS = shapes.Key(
    "channels",
    _table("channel", r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", _CHANNEL),
    "Where messages may go.",
)
_MESSAGE = _settings(_CHANNELS, required=(_CHANNELS,))
_COMMAND = shapes.Key("command", shapes.Text(), "The stdio server that is run; no shell reads it.")
_SERVER_URL = shapes.Key("url", _URL, "The server's URL.")
_SERVER_KEYS = _settings(
    _COMMAND,
    shapes.Key("args", _TEXTS, "Its arguments."),
    shapes.Key("env", _table("variable", VARIABLE_NAME, _VALUE), "Its environment."),
    _SERVER_URL,
    shapes.Key(
        "headers",
        _table("header", "[A-Za-z0-9-]{1,64}", _VALUE),
        "What is sent with each request to the URL.",
    ),
    shapes.Key(
        "internal_only",
        shapes.Flag(),
        "Only a skill's allowed_tools show its tools; nobody can be granted one.",
        True,
    ),
    shapes.Key("timeout_s", shapes.Limit(_MAX_SERVER_CALL), "The time of a call.", 60),
    either=(_COMMAND, _SERVER_URL),
)
_SERVER = _paired(_SERVER_KEYS, args="command", env="command", headers="url")
_SERVERS = _table("MCP server", _NAMESPACE, _SERVER)
_TOOLS: tuple[shapes.Key[Any], ...] = (
    shapes.Key("exec", _EXEC, "exec_shell and spawn: commands in the agent's workspace."),
    shapes.Key("spawn", _SPAWN, "More about spawn."),
    shapes.Key("url_policy", _URL_POLICY, "Where web_fetch may go."),
    shapes.Key("web_search", _WEB_SEARCH, "The search engine of web_search."),
    shapes.Key("message", _MESSAGE, "The channels of message."),
    shapes.Key("mcp_servers", _SERVERS, "MCP servers behind the tools host."),
)
_PER_MINUTE = shapes.Key(
    "calls_per_minute", shapes.Limit(), "How many calls of an agent start in a minute.", 600
)
_CONCURRENT = shapes.Key(
    "concurrent", shapes.Limit(_MAX_AT_ONCE), "How many calls of an agent run at once.", 16
)
_SIZES = (
    shapes.Key("result_bytes", _SIZE, "The size of a result.", "64KiB"),
    shapes.Key("read_bytes", _SIZE, "How much of a file is read.", "10MiB"),
    shapes.Key("write_bytes", _SIZE, "The size of a file that is written.", "10MiB"),
    shapes.Key("memory_bytes", _SIZE, "The size of MEMORY.md.", "256KiB"),
)
_HOST: tuple[shapes.Key[Any], ...] = (
    shapes.Key(
        "limits",
        _settings(*_SIZES, _PER_MINUTE, _CONCURRENT),
        "Limits of the host, and of each agent.",
    ),
    shapes.Key(
        "protected",
        _TEXTS,
        "Files that the file tools do not write, in the place of the built-in list.",
    ),
    shapes.Key(
        "audit_arguments",
        shapes.Choice(("digest", "full")),
        "What the log has of a call's arguments.",
        "digest",
    ),
)
_FILE_KEY = shapes.Key(
    "file", shapes.Text(), "A toolhost.yml beside the pod file, with these settings."
)
_VOLUME_KEY = shapes.Key(
    "volume",
    shapes.Text(_VOLUME, f"a volume's name is {_VOLUME}"),
    "The volume of the workspaces; default: NAME-workspaces.",
)


def _read(members: shapes.Members, keys: tuple[shapes.Key[Any], ...]) -> Settings:
    return {key.name: _plain(value) for key in keys if (value := members[key]) is not None}


def _build(members: shapes.Members) -> ToolsHost:
    file, volume = members[_FILE_KEY], members[_VOLUME_KEY]
    return ToolsHost(
        file, volume.text if volume else None, _read(members, _TOOLS), _read(members, _HOST)
    )


TOOLS_HOST = shapes.Record((_FILE_KEY, _VOLUME_KEY, *_TOOLS, *_HOST), _build, is_nullable=True)

_ELSEWHERE = tuple(
    shapes.Key(
        name,
        shapes.AnyMapping(),
        "Of a host that is no part of a pod; the compiler writes its own.",
    )
    for name in ("listen", "principals")
)
_HOST_SECTION = shapes.Key(
    "toolhost",
    shapes.Record((*_HOST, *_ELSEWHERE), lambda members: _read(members, _HOST), is_nullable=True),
    "The host.",
)
_TOOLS_SECTION = shapes.Key("tools", _settings(*_TOOLS, is_nullable=True), "What the tools may do.")
TOOLHOST_FILE = shapes.Record(
    (_HOST_SECTION, _TOOLS_SECTION),
    lambda members: ToolsHost(
        host=members[_HOST_SECTION] or {}, tools=members[_TOOLS_SECTION] or {}
    ),
    "toolhost.yml",
)
"""A whole ``toolhost.yml``, of which a pod takes the settings; principals and
addresses are the compiler's.
"""
