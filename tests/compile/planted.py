"""A pod with a different secret in every place where a pod can have one."""

from __future__ import annotations

import json
from pathlib import Path

POD = """\
x-claw:
  pod: planted
  cllama-defaults:
    proxy: passthrough
    env: {OPENAI_API_KEY: $PROVIDER, GATEWAY_PASSWORD: "${GATEWAY}", ANTHROPIC_API_KEY: planted-key-that-stands-in-the-pod}
  secrets:
    held: {env: HELD}
    filed: {file: ./held.txt}
services:
  one:
    image: runner:1
    environment:
      LEVEL: info
    x-claw:
      agent: AGENTS.md
      tools: [{service: api, allow: [look]}, {service: kept, allow: [look]}, {service: filed, allow: [look]}]
      feeds: [news]
      memory: {service: api}
      service-auth:
        - {service: kept, env: OWN, principal: one}
  two:
    image: runner:1
    env_file: two.env
    x-claw:
      agent: AGENTS.md
      tools: [{service: api, allow: [look]}, {service: kept, allow: [look]}]
  api:
    image: api:1
    build: {context: api, args: {BUILD_TOKEN: "$BUILD"}}
    expose: ["80"]
    command: serve --dsn postgres://user:$DSN@db/x
    environment: [API_TOKEN=$TOKEN, "DB_PASSWORD=${DB}"]
    secrets: [db]
    configs: [settings]
    x-claw: {describe-file: api.json}
  kept:
    image: kept:1
    expose: ["80"]
    env_file: [{path: kept.env}]
    environment: {OWN: $OWN, OTHER: $OTHER}
    x-claw: {describe-file: kept.json, auth: {type: header, header: X-Key, secret: held}}
  filed:
    image: filed:1
    expose: ["80"]
    x-claw: {describe-file: kept.json, auth: {type: bearer, secret: filed}}
secrets:
  db: {environment: COMPOSE_SECRET}
configs:
  settings: {content: "a ${CONFIG}"}
"""
NAMES = (
    "PROVIDER",
    "GATEWAY",
    "HELD",
    "TOKEN",
    "OWN",
    "BUILD",
    "DSN",
    "DB",
    "OTHER",
    "COMPOSE_SECRET",
    "CONFIG",
)
IN_DOTENV = {"DB", "GATEWAY", "TOKEN"}
ENVIRON = {
    name: f"planted-{name.lower()}-0123456789" for name in NAMES if name not in IN_DOTENV
} | {"CLAW_MASTER_SECRET": "planted-master-0123456789"}
DOTENV = {name: f"planted-dotenv-{name.lower()}-0123456789" for name in sorted(IN_DOTENV)}
TOOLS = ("context/one/tools.json", "context/two/tools.json")
HOLDERS: dict[str, tuple[str, ...]] = {
    ENVIRON["PROVIDER"]: ("auth/providers.json",),
    "planted-key-that-stands-in-the-pod": ("auth/providers.json",),
    DOTENV["GATEWAY"]: ("auth/env",),
    ENVIRON["HELD"]: ("secrets/held",),
    DOTENV["TOKEN"]: ("context/one/feeds.json", "context/one/memory.json", *TOOLS),
    ENVIRON["OWN"]: ("context/one/service-auth/kept.json", "context/one/tools.json"),
    **{
        ENVIRON[name]: ()
        for name in ("BUILD", "DSN", "OTHER", "COMPOSE_SECRET", "CONFIG", "CLAW_MASTER_SECRET")
    },
    DOTENV["DB"]: (),
    **dict.fromkeys(("planted-in-kept-env", "planted-in-two-env", "planted-in-held-txt"), ()),
}
"""Each secret, and the files of the compiled tree that contain it."""


def planted_pod(directory: Path) -> Path:
    """Write the pod's files and return the pod file; the pod compiles."""
    tool = {
        "name": "look",
        "description": "Look.",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnly": True},
    }
    http = {"http": {"method": "GET", "path": "/look"}}
    auth = {"auth": {"type": "bearer", "env": "API_TOKEN"}}
    feeds = {
        "feeds": [{"name": "news", "path": "/news", "ttl": 60}],
        "memory": {"recall": {"path": "/recall"}},
    }
    described = {"version": 2, "tools": [tool | http]}
    (directory / "api").mkdir(parents=True)
    for name, text in {
        "claw-pod.yml": POD,
        "AGENTS.md": "# Contract\n",
        "api.json": json.dumps(described | auth | feeds),
        "kept.json": json.dumps(described),
        ".env": "".join(f"{name}={value}\n" for name, value in DOTENV.items()),
        "kept.env": "KEPT=planted-in-kept-env\n",
        "two.env": "NOTE=planted-in-two-env\n",
        "held.txt": "planted-in-held-txt\n",
        "api/Dockerfile": "FROM scratch\nARG BUILD_TOKEN\n",
    }.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory / "claw-pod.yml"
