"""The base URL of a service that provides tools, derived from its ports."""

from __future__ import annotations

import pytest

from claw_compile.diagnostics.diagnostic import Diagnostic, Span
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.parsing.node import ScalarNode, Source
from claw_compile.parsing.yaml_reader import read_yaml
from claw_compile.policy.connect import base_url

NAME = ScalarNode("svc", Span("pod", 1, 1, 4))


def asked(text: str, **environ: str) -> tuple[str | None, list[str]]:
    root = read_yaml(Source("pod", text or "{}")).value
    assert root is not None
    diagnostics: list[Diagnostic] = []
    service = ServiceSpec(NAME, expose=root.value("expose"), ports=root.value("ports"))
    return base_url(service, environ.get, diagnostics), [each.code.name for each in diagnostics]


@pytest.mark.requirement("compile:base-url")
@pytest.mark.parametrize(
    ("text", "url", "codes"),
    [
        ('expose: ["53/udp", "8080"]', "http://svc:8080", []),
        ('expose: ["8080/tcp"]', "http://svc:8080", []),
        ("expose: [4000]", "http://svc:4000", []),
        ('expose: ["4000", 4000]', "http://svc:4000", []),
        ('expose: ["3000-3005"]', None, ["port-range"]),
        ('expose: ["${PORT}"]', "http://svc:4000", []),
        ('expose: ["${UNSET}"]', None, ["unset-variable"]),
        ('ports: ["4000:${PORT:-1}"]', "http://svc:4000", []),
        ('ports: ["80:${UNSET:-4001}"]', "http://svc:4001", []),
        ('expose: ["9090", "8080"]', "http://svc:9090", ["several-ports"]),
        ('expose: ["4000"]\nports: ["80:9000"]', "http://svc:4000", []),
        ('expose: ["53/udp"]\nports: ["80:9000"]', "http://svc:9000", []),
        ('ports: ["127.0.0.1:8080:80/tcp"]', "http://svc:80", []),
        ('ports: ["[::1]:8080:81"]', "http://svc:81", []),
        ("ports: [4000:22]", "http://svc:22", []),
        ("ports: [{target: 7000, published: 80}]", "http://svc:7000", []),
        ("ports: [{target: 53, protocol: udp}]", "http://svc:80", ["no-port"]),
        ("", "http://svc:80", ["no-port"]),
        ("expose: 4000", None, ["bad-port"]),
        ("expose: [web]", None, ["bad-port"]),
        ("ports: [{published: 80}]", None, ["bad-port"]),
    ],
)
def test_a_base_url_is_made_of_the_first_tcp_port(
    text: str, url: str | None, codes: list[str]
) -> None:
    assert asked(text, PORT="4000") == (url, codes)


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://x:4000", "http://x:4000"),
        ("https://x/base/", "https://x/base"),
        ("http://[::1]:80", "http://[::1]:80"),
        ("x:4000", None),
        ("http://user@x", None),
        ("http://x?q", None),
        ("http://x:99999", None),
        ("http://x:port", None),
        ("http://x y", None),
        ("http://[::1", None),
    ],
)
def test_a_stated_base_url_is_checked(written: str, url: str | None) -> None:
    diagnostics: list[Diagnostic] = []
    service = ServiceSpec(NAME, base_url=ScalarNode(written, NAME.span))
    assert base_url(service, {}.get, diagnostics) == url
    assert [each.code.name for each in diagnostics] == ([] if url else ["bad-base-url"])
