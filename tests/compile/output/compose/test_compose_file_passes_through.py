"""A Compose file without agents passes through the compiler unchanged: Docker
Compose reads both alike.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from claw_compile.compiler import compile_pod
from tests.compile.oracle import compose_config

MASTER = {"CLAW_MASTER_SECRET": "a-master-secret-for-tests"}
EVERYTHING = r"""
name: all-of-compose
x-claw: {pod: other-name}
x-base: &base
  restart: unless-stopped
  environment: &env {SHARED: "1", OVERRIDDEN: a}
services:
  web:
    <<: *base
    image: web:${TAG:-1.0}
    environment:
      <<: *env
      OVERRIDDEN: b
      DOLLAR: $$HOME
      SECRET: ${TOKEN}
      EMPTY: ""
      "NULL": null
      "ON": on
      OCTAL: 0123
      HEX: 0x10
      DATE: "2001-01-01"
      TAGGED: !!str 0123
      NUMBER: 1e3
      TEXT: |
        a line: with # signs
          and an indented one

      FOLDED: >-
        one
        two
    command: [sh, -c, "echo \"$$1\" 'x' \\ \t é \u2028"]
    ports: ["4000:22", 8080, {target: 80, published: "8081", protocol: tcp}, "127.0.0.1:9000-9002:9000-9002/udp"]
    expose: [3000, "53/udp"]
    volumes: ["data:/data:ro", {type: bind, source: ./here, target: /there}, {type: tmpfs, target: /t}]
    tmpfs: /run
    depends_on: {db: {condition: service_healthy, restart: true, required: false}}
    links: [db:database]
    networks: {front: {aliases: [www], ipv4_address: 10.9.0.5}, back: }
    labels: [a=b, c=d$$e]
    healthcheck: {test: "curl -f http://localhost || exit 1", interval: 1m30s, retries: 3}
    deploy: {replicas: 2, resources: {limits: {cpus: "0.50", memory: 50M}}}
    ulimits: {nproc: 65535, nofile: {soft: 20000, hard: 40000}}
    sysctls: [net.core.somaxconn=1024]
    secrets: [token, {source: cert, target: c.pem, mode: 0440}]
    configs: [{source: conf, target: /etc/conf}]
    logging: {driver: json-file, options: {max-size: 10m}}
    extra_hosts: ["host.docker.internal:host-gateway"]
    user: "1000:1000"
    init: true
    stop_grace_period: 1m
    x-other: {kept: [1, 1.0, true, "true", ~, [], {}]}
    x-claw: {base-url: "http://web"}
  db: {image: db, restart: "no", networks: [back], profiles: [debug], environment: [A=1, B]}
  reset: {image: r, command: !reset null, ports: !override ["1:1"]}
  built: {build: {context: ., args: {A: "1"}, dockerfile_inline: "FROM scratch\n"}}
networks:
  front: {ipam: {config: [{subnet: 10.9.0.0/24}]}}
  back: {internal: true, driver_opts: {a: "1"}}
volumes: {data: {name: "real-data"}, other: }
secrets: {token: {environment: TOKEN}, cert: {file: ./cert.pem}}
configs: {conf: {content: "a ${TAG:-x}\nb: $$c\n"}}
"""


def both_ways(text: str, directory: Path, **environ: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return Compose's reading of the pod file, without ``x-claw``, and of the file
    that is compiled from it.
    """
    pod = directory / "claw-pod.yml"
    pod.write_text(text, encoding="utf-8")
    result = compile_pod(pod, {**MASTER, **environ})
    assert result.value is not None, [
        (diagnostic.code.name, diagnostic.span, diagnostic.message)
        for diagnostic in result.diagnostics
    ]
    before, after = (
        compose_config(pod, **environ),
        compose_config(directory / "compose.generated.yml", **environ),
    )
    for holder in (before, *before.get("services", {}).values()):
        holder.pop("x-claw", None)
    return before, after


@pytest.mark.requirement("compose:passes-through")
def test_everything_that_compose_knows_means_what_it_meant(tmp_path: Path) -> None:
    before, after = both_ways(EVERYTHING, tmp_path, TOKEN="p$word", B="from the shell")
    assert after == before
    assert after["services"]["web"]["environment"]["SECRET"] == "p$word"
    assert (tmp_path / "compose.generated.yml").read_text(encoding="utf-8").count("${TOKEN}") == 1


def test_a_pod_takes_the_name_that_it_has_where_compose_was_given_none(tmp_path: Path) -> None:
    _, after = both_ways("x-claw: {pod: my-pod}\nservices: {a: {image: b}}\n", tmp_path)
    assert after["name"] == "my-pod"


_PLAIN = st.from_regex(
    r"[A-Za-z0-9.+~_/=<-][A-Za-z0-9.+~_/=:-]{0,6}[A-Za-z0-9.+~_/=-]", fullmatch=True
)
_CHARACTERS = st.characters(
    codec="utf-8", max_codepoint=0xFFFF, exclude_characters="$"
)  # JSON escapes others in two halves
_QUOTED = st.one_of(
    st.text(_CHARACTERS, max_size=20).map(json.dumps), st.just('"é🦀"'), st.just("'it''s # \\n'")
)
_SCALAR = st.one_of(_PLAIN, _QUOTED)
_TREE = st.recursive(
    _SCALAR,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(
            st.from_regex(r"[a-z][a-z0-9_-]{0,5}", fullmatch=True), inner, max_size=4
        ).map(
            lambda items: (
                "{" + ", ".join(f'"{name}": {value}' for name, value in items.items()) + "}"
            )
        ),
    ),
    max_leaves=40,
)


@pytest.mark.requirement("compose:passes-through")
@settings(max_examples=25, deadline=None)
@given(st.lists(_TREE, min_size=5, max_size=20))
@example(
    [
        "0123",
        "0o17",
        "1_000",
        "22:22",
        "on",
        "~",
        "2001-01-01",
        "-.5",
        "0b1",
        "1e3",
        "<<",
        "=",
        "...",
        "-1",
        "+1",
    ]
)
def test_every_value_in_every_spelling_is_what_it_was(values: list[str]) -> None:
    text = (
        f"name: p\nx-claw: {{pod: p}}\nx-data: [{', '.join(values)}]\nservices: {{a: {{image: "
        f"b}}}}\n"
    )
    assume(
        not any(word in text.lower() for word in (".inf", ".nan"))
    )  # JSON, which Compose prints, has no such numbers
    with tempfile.TemporaryDirectory() as name:
        before, after = both_ways(text, Path(name))
    assert after == before


@pytest.mark.requirement("compose:derived-networks")
def test_an_agent_is_not_on_the_networks_of_what_it_extends(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("# Contract\n", encoding="utf-8")
    text = """
x-claw: {pod: p}
services:
  base: {image: b, networks: [back, default], environment: {KEPT: "1"}}
  one: {extends: base, x-claw: {agent: AGENTS.md, cllama: passthrough}}
networks: {back: {}}
"""
    (tmp_path / "claw-pod.yml").write_text(text, encoding="utf-8")
    assert compile_pod(tmp_path / "claw-pod.yml", MASTER).value is not None
    one = compose_config(tmp_path / "compose.generated.yml")["services"]["one"]
    assert one["environment"]["KEPT"] == "1"
    assert set(one["networks"]) == {"claw-agent-one"}
