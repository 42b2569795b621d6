"""toolhost.yml: what it gives, and every way in which it can be wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from claw_contract.toolhost_file import ExecSection, LimitsSection, UrlPolicySection
from claw_tools.settings import HostSettings, SettingsError, read_settings
from tests.tools.hosting import run

ENVIRON = {
    "TOKEN_A": "secret-of-a",
    "TOKEN_B": "secret-of-b",
    "SAME": "secret-of-a",
    "KEY": "secret-key",
    "BUS": "redis://secret-bus",
    "EMPTY": "",
}
SMALL = """\
toolhost:
  principals:
    a: {token: {env: TOKEN_A}, workspace: ws, tools: ["*"]}
"""
WHOLE = """\
toolhost:
  listen: {host: 0.0.0.0, port: 9000, path: /rpc, allowed_hosts: ["ToolHost:9000"], max_body: 2MiB}
  principals:
    a: {token: {env: TOKEN_A}, workspace: ws, tools: ["read_*", web_fetch], limits: {calls_per_minute: 5, concurrent: 2}}
    b.c: {token: {file: token.txt}, workspace: ws/.., tools: []}
    local: {workspace: ws, tools: ["*"]}
  limits: {result_bytes: 32 KiB, read_bytes: 1MiB, write_bytes: 1048576, memory_bytes: 2KiB}
  protected: [.env]
  audit_arguments: full
tools:
  exec: {enabled: true, network: true, allow: [ls], deny: [rm], default_timeout_s: 1.5, max_timeout_s: 60, environment: {A: b}}
  spawn: {max_concurrent: 2}
  url_policy: {ports: [8080], allow_private: [intra], allowed_domains: [x.y], blocked_domains: [z]}
  web_search: {endpoint: "https://search/", backend: brave, api_key: {env: KEY}}
  message:
    channels:
      hook: {webhook: "https://hook/", token: {env: KEY}}
      bus: {redis: "redis://:${KEY}@valkey/0", stream: out}
      other: {redis: {env: BUS}, stream: out}
  mcp_servers:
    time: {command: uvx, args: [time, --utc], env: {A: plain, B: "x ${KEY}"}, internal_only: false, timeout_s: 5}
    remote: {url: "https://remote/mcp", headers: {Authorization: "Bearer ${KEY}"}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    (tmp_path / "token.txt").write_text("secret-in-file\n")
    return tmp_path


def read(home: Path, text: str | bytes) -> HostSettings:
    file = home / "toolhost.yml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_settings(file, ENVIRON, frozenset({"installed"}))


def errors(home: Path, text: str | bytes) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        read(home, text)
    return str(refused.value).replace(f"{home}/toolhost.yml:", "").splitlines()


@pytest.mark.requirement("host:config")
def test_every_key_reaches_its_setting(home: Path) -> None:
    settings = read(home, WHOLE)
    a, b, local = settings.principals
    assert (a.name, a.workspace, a.globs) == ("a", home / "ws", ("read_*", "web_fetch"))
    assert (a.limits.calls_per_minute, a.limits.concurrent) == (5, 2)
    assert a.token is not None
    assert b.token is not None
    assert (a.token.reveal(), b.token.reveal(), local.token) == (
        "secret-of-a",
        "secret-in-file",
        None,
    )
    assert (a.token_variable, b.token_variable, b.globs) == ("TOKEN_A", "", ())
    listen = settings.listen
    assert (listen.host, listen.port, listen.path) == ("0.0.0.0", 9000, "/rpc")
    assert (listen.allowed_hosts, listen.max_body) == (["ToolHost:9000"], 2 << 20)
    assert settings.limits == LimitsSection(
        result_bytes=32 << 10, read_bytes=1 << 20, write_bytes=1 << 20, memory_bytes=2 << 10
    )
    assert (settings.protected, settings.audit_arguments) == ((".env",), "full")

    tools = settings.tools
    assert tools.exec == ExecSection(
        enabled=True,
        network=True,
        allow=["ls"],
        deny=["rm"],
        default_timeout_s=1.5,
        max_timeout_s=60,
        environment={"A": "b"},
    )
    assert tools.spawn.max_concurrent == 2
    assert tools.url_policy == UrlPolicySection(
        ports=[8080], allow_private=["intra"], allowed_domains=["x.y"], blocked_domains=["z"]
    )
    search = tools.web_search
    assert search is not None
    assert search.api_key is not None
    assert (search.endpoint, search.backend) == ("https://search/", "brave")
    assert search.api_key.reveal() == "secret-key"
    assert tools.message is not None
    hook, bus, other = tools.message.channels.values()
    assert (hook.webhook, hook.token, hook.redis) == ("https://hook/", search.api_key, None)
    assert bus.redis is not None
    assert other.redis is not None
    assert (bus.redis.reveal(), other.redis.reveal(), bus.stream) == (
        "redis://:secret-key@valkey/0",
        "redis://secret-bus",
        "out",
    )
    time, remote = tools.mcp_servers["time"], tools.mcp_servers["remote"]
    assert (time.command, time.args, time.internal_only, time.timeout_s) == (
        "uvx",
        ["time", "--utc"],
        False,
        5,
    )
    assert {name: each.reveal() for name, each in time.env.items()} == {
        "A": "plain",
        "B": "x secret-key",
    }
    assert (remote.url, remote.internal_only) == ("https://remote/mcp", True)
    assert remote.headers["Authorization"].reveal() == "Bearer secret-key"


@pytest.mark.requirement("host:config")
def test_what_is_not_named_has_the_value_of_the_page(home: Path) -> None:
    settings = read(home, SMALL)
    assert settings == HostSettings(principals=settings.principals)
    (only,) = settings.principals
    lowered = read(home, f"{SMALL}tools: {{exec: {{max_timeout_s: 10}}}}\n")
    assert lowered.tools.exec.max_timeout_s == 10, "the default may be above"
    limits = only.limits
    assert (limits.calls_per_minute, limits.concurrent) == (600, 16)
    assert settings.tools.exec.enabled is False


def with_line(section: str, line: str) -> str:
    """Return a sound configuration with one more line in a section."""
    sections = {"toolhost": SMALL, "tools": f"{SMALL}tools:\n", "principals": SMALL}
    indent = 4 if section == "principals" else 2
    return f"{sections[section]}{' ' * indent}{line}\n"


B = "b: {token: {env: TOKEN_B}, workspace: ws, tools: []"


@pytest.mark.requirement("host:config-errors", "host:config-secrets")
@pytest.mark.parametrize(
    ("section", "line", "place", "words"),
    [
        ("toolhost", "limts: {}", "4:3", "no key 'limts': did you mean 'limits'?"),
        ("toolhost", "zzz: {}", "4:3", "its keys are listen, principals"),
        ("toolhost", "listen: {port: 65536}", "4:18", "toolhost.listen.port"),
        ("toolhost", "listen: {port: '80'}", "4:18", "toolhost.listen.port"),
        ("toolhost", "listen: {path: mcp}", "4:18", "starts with '/'"),
        ("toolhost", "listen: {path: /health}", "4:18", "write /mcp"),
        ("toolhost", "limits: {result_bytes: 10Mb}", "4:26", "10MiB"),
        ("toolhost", "limits: {result_bytes: 1}", "4:26", "1024"),
        ("toolhost", "audit_arguments: all", "4:20", "'digest' or 'full'"),
        ("toolhost", "protected: {a: b}", "4:14", "toolhost.protected"),
        ("principals", "B: {workspace: ws, tools: []}", "4:5", "agent id"),
        ("principals", "b: {workspace: ws, tools: []", "5:1", "expected ',' or '}'"),
        ("principals", "b: {workspace: ws}", "4:5", "principals.b has no 'tools'"),
        (
            "principals",
            "b: {workspace: nowhere, tools: []}",
            "4:20",
            "make it, or name another one",
        ),
        ("principals", "b: {workspace: token.txt, tools: []}", "4:20", "there is no folder"),
        ("principals", 'b: {workspace: "ws\\0", tools: []}', "4:20", "there is no folder"),
        ("principals", "b: {workspace: ws, tools: [a.b]}", "4:32", "pattern"),
        ("principals", "b: {workspace: ws, tools: read_file}", "4:31", "list"),
        (
            "principals",
            "b: {token: hunter2, workspace: ws, tools: []}",
            "4:16",
            "{env: NAME} or {file: PATH}",
        ),
        (
            "principals",
            "b: {token: {env: NOWHERE}, workspace: ws, tools: []}",
            "4:16",
            "NOWHERE is not set: set it",
        ),
        (
            "principals",
            "b: {token: {env: EMPTY}, workspace: ws, tools: []}",
            "4:16",
            "EMPTY is not set",
        ),
        (
            "principals",
            "b: {token: {file: nowhere}, workspace: ws, tools: []}",
            "4:16",
            "No such file",
        ),
        (
            "principals",
            "b: {token: {file: ws}, workspace: ws, tools: []}",
            "4:16",
            "Is a directory",
        ),
        (
            "principals",
            "b: {token: {env: KEY, file: x}, workspace: ws, tools: []}",
            "4:16",
            "{env: NAME} or {file: PATH}",
        ),
        (
            "principals",
            "b: {token: {env: SAME}, workspace: ws, tools: []}",
            "4:16",
            "another principal has the same token",
        ),
        ("principals", B + ", limits: {concurrent: 0}}", "4:79", "greater than or equal to 1"),
        ("principals", B + ", name: x}", "4:58", "no key 'name'"),
        (
            "principals",
            "a: {workspace: ws, tools: []}",
            "4:5",
            "the key 'a' stands here for the second time",
        ),
        ("tools", "exec: {enabled: maybe}", "5:19", "tools.exec.enabled"),
        ("tools", "exec: {default_timeout_s: 60, max_timeout_s: 30}", "5:9", "lower it"),
        ("tools", "exec: {max_timeout_s: 301}", "5:25", "less than or equal to 300"),
        ("tools", "exec: {max_timeout_s: .inf}", "5:25", "300"),
        ("tools", "exec: {environment: {A B: c}}", "5:24", "pattern"),
        ("tools", "url_policy: {ports: [0]}", "5:24", "tools.url_policy.ports.0"),
        ("tools", "url_policy: {allow_private: [x, '*.y']}", "5:35", "is no host: write a name"),
        ("tools", "url_policy: {allowed_domains: [0x7f.1]}", "5:34", "is no host"),
        ("tools", "url_policy: {blocked_domains: ['http://x']}", "5:34", "is no host"),
        (
            "tools",
            "web_search: {endpoint: 'http://u:hunter2@x'}",
            "5:26",
            "a user name: write http://HOST/PATH",
        ),
        (
            "tools",
            "message: {channels: {x: {webhook: 'http://0x7f.1'}}}",
            "5:37",
            "its host is no name",
        ),
        (
            "tools",
            "message: {channels: {x: {redis: 'unix:///x', stream: s}}}",
            "5:35",
            "write redis://HOST:PORT/0",
        ),
        ("tools", "mcp_servers: {x: {url: 'http://['}}", "5:26", "this URL can't be used"),
        ("tools", "web_search: {}", "5:3", "has no 'endpoint'"),
        ("tools", "web_search: {endpont: x}", "5:16", "did you mean 'endpoint'?"),
        ("tools", "web_search: {endpoint: 'ftp://x'}", "5:26", "tools.web_search.endpoint"),
        (
            "tools",
            "web_search: {endpoint: 'http://x', backend: google}",
            "5:47",
            "'generic', 'brave' or 'searxng'",
        ),
        ("tools", "message: {}", "5:3", "tools.message has no 'channels'"),
        ("tools", "message: {channels: {'': {webhook: 'http://x'}}}", "5:24", "at least 1"),
        ("toolhost", "limits: {concurrent: 1}", "4:12", "no key 'concurrent'"),
        ("principals", B + ", limits: {concurrent: 1001}}", "4:79", "less than or equal to 1000"),
        ("tools", "message: {channels: {x: {}}}", "5:27", "either 'webhook' or 'redis'"),
        (
            "tools",
            "message: {channels: {x: {redis: 'redis://x'}}}",
            "5:27",
            "'redis' goes with 'stream'",
        ),
        (
            "tools",
            "message: {channels: {x: {webhok: 'redis://x'}}}",
            "5:28",
            "did you mean 'webhook'?",
        ),
        ("tools", "mcp_servers: {builtin: {command: x}}", "5:17", "'builtin' is taken"),
        ("tools", "mcp_servers: {installed: {command: x}}", "5:17", "'installed' is taken"),
        ("tools", "mcp_servers: {a__b: {command: x}}", "5:17", "without '_'"),
        ("tools", "mcp_servers: {A: {command: x}}", "5:17", "[a-z0-9]"),
        ("tools", "mcp_servers: {x: {}}", "5:20", "either 'command' or 'url'"),
        (
            "tools",
            "mcp_servers: {x: {command: y, url: 'http://z'}}",
            "5:20",
            "either 'command' or 'url'",
        ),
        (
            "tools",
            "mcp_servers: {x: {url: 'http://z', args: [a]}}",
            "5:20",
            "'args' goes with 'command'",
        ),
        (
            "tools",
            "mcp_servers: {x: {command: y, env: {A: '${NOWHERE}'}}}",
            "5:42",
            "NOWHERE is not set",
        ),
        ("tools", "mcp_servers: {x: {command: y, env: {A: 7}}}", "5:42", "x.env.A"),
        ("tools", "mcp_servers: {x: {command: y, timeout_s: 0}}", "5:44", "greater than 0"),
        ("tools", "mcp_servers: {x: {command: y}, x: {command: z}}", "5:34", "second time"),
        ("tools", "exec: {enabled: on}", "5:19", "write true or false"),
        ("toolhost", "listen: {port: 22:22}", "4:18", "toolhost.listen.port"),
        ("toolhost", "listen: {port: 1_000}", "4:18", "toolhost.listen.port"),
        ("toolhost", 'protected: ["\\ud800"]', "4:15", "half a character"),
    ],
)
def test_an_error_has_its_place_its_thing_and_its_remedy(
    home: Path, section: str, line: str, place: str, words: str
) -> None:
    told = errors(home, with_line(section, line))
    assert any(each.startswith(f"{place}: ") and words in each for each in told), told
    assert not any(secret in "".join(told) for secret in ("hunter2", "secret"))


@pytest.mark.requirement("host:config-errors")
def test_all_errors_are_told_in_one_run_in_the_order_of_their_places(home: Path) -> None:
    text = (
        with_line("principals", "b: {workspace: nowhere, tools: []}")
        + "  limts: 7\ntools:\n  spawn: {max: 1}\nmore: 1\n"
    )
    told = errors(home, text)
    assert [each.partition(" ")[0] for each in told] == ["4:20:", "5:3:", "7:11:", "8:1:"]
    assert all(re.match(r"\d+:\d+: \S", each) for each in told)


@pytest.mark.requirement("host:config-yaml")
@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", "1:1", "the file"),
        ("- a\n", "1:1", "the file"),
        (
            "a: b: c\n",
            "1:5",
            "no YAML: mapping values are not allowed here: correct it here, or just before",
        ),
        ("toolhost: {\n", "2:1", "no YAML"),
        ("toolhost: !!python/object:os.system {}\n", "1:11", "is not known here: leave it out"),
        ("toolhost: !x y\n", "1:11", "is not known here: leave it out"),
        ("toolhost: {}\n---\na: b\n", "2:1", "no YAML"),
        ("? {a: b}\n: c\n", "1:3", "a key is a word"),
        ("a: &a [*a]\n", "1:1", "an anchor that contains itself"),
        ("a: &a {<<: *a}\n", "1:1", "an anchor that contains itself"),
        ("<<: [a]\n", "1:6", "merges a mapping"),
        ('a: "\\UFFFFFFFF"\n', "1:1", "an escape that names no character"),
        (b"\xff\xfe\x00", "1:1", "characters"),
        (b"a: \x00\n", "1:1", "characters"),
        ("[" * 5_000, "1:1", "nested too deeply"),
        ("x" * (1 << 20) + "y", "1:1", "longer than"),
    ],
)
def test_a_text_that_can_not_be_read_has_a_place_too(
    home: Path, text: str | bytes, place: str, words: str
) -> None:
    told = errors(home, text)
    assert any(each.startswith(f"{place}: ") and words in each for each in told), told


@pytest.mark.requirement("host:config-yaml")
def test_a_bomb_of_aliases_is_refused_and_a_modest_alias_is_not(home: Path) -> None:
    bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
    bomb += "".join(
        f"a{each}: &a{each} [{', '.join([f'*a{each - 1}'] * 10)}]\n" for each in range(1, 12)
    )
    (told,) = errors(home, bomb)
    assert "are its aliases right?" in told
    merged = "a0: &a0 {x: y}\n"
    merged += "".join(
        f"a{each}: &a{each} {{<<: [{', '.join([f'*a{each - 1}'] * 10)}]}}\n"
        for each in range(1, 12)
    )
    (told,) = errors(home, merged)
    assert "are its aliases right?" in told
    shared = SMALL.replace('["*"]', '&all ["*"]') + "    b: {workspace: ws, tools: *all}\n"
    assert [each.globs for each in read(home, shared).principals] == [("*",), ("*",)]


@pytest.mark.requirement("host:config-served")
@pytest.mark.parametrize(
    "verb", [("serve",), ("serve", "--stdio"), ("describe", "--offline"), ("check",)]
)
def test_with_an_error_nothing_is_served_and_the_exit_code_is_1(
    home: Path, verb: tuple[str, ...]
) -> None:
    (home / "bad.yml").write_text("toolhost:\n  principals:\n    a: {workspace: nowhere}\n")
    result = run(*verb, "--config", "bad.yml", home=home)
    assert (result.returncode, result.stdout) == (1, "")
    lines = result.stderr.splitlines()
    assert [line.partition(": ")[2].partition(" ")[0] for line in lines] == [
        "bad.yml:3:5:",
        "bad.yml:3:20:",
    ]


@pytest.mark.requirement("host:config-served")
@pytest.mark.parametrize(
    ("config", "arguments", "words"),
    [
        (None, [], "toolhost.yml: No such file or directory: name the file by --config"),
        (SMALL.replace("token: {env: TOKEN_A}, ", ""), [], "no principal has a token"),
        (SMALL, ["--stdio", "--principal", "zoe"], "there is no principal 'zoe': name one of a"),
        (
            SMALL + "    b: {workspace: ws, tools: []}\n",
            ["--stdio"],
            "name one by --principal (a, b)",
        ),
    ],
)
def test_what_can_not_be_served_is_one_line(
    home: Path, config: Any, arguments: list[str], words: str
) -> None:
    if config is not None:
        (home / "toolhost.yml").write_text(config)
    result = run("serve", *arguments, home=home)
    assert (result.returncode, result.stdout, result.stderr.count("\n")) == (1, "", 1)
    assert words in result.stderr


@pytest.mark.requirement("host:config-served")
def test_a_principal_over_http_is_wrong_usage(home: Path) -> None:
    result = run("serve", "--principal", "a", home=home)
    assert (result.returncode, result.stdout) == (2, "")
    assert "--stdio" in result.stderr
