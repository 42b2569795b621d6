"""The cost of checking a large pod: ``python bench/compiling.py [--services N] [--agents N]
[--rounds N] [--profile]``.

CPU of a process of its own, user and system, start-up included; beside it the cost of a start that
checks only a pod of one agent. The pod: every service has a descriptor of five tools; every agent
has five services, with a feed and a token among them, and variables of its own.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import pstats
import sys
import tempfile
from pathlib import Path
from statistics import median

TOOLS = 5
OF_AN_AGENT = 5
ENVIRON = {"CLAW_MASTER_SECRET": "a-master-secret-for-the-bench", "TOKEN": "a-token-of-the-bench"}


def make_pod(directory: Path, services: int, agents: int) -> Path:
    """Write a pod file with its descriptors and contracts; return its path."""
    (directory / "api").mkdir(parents=True)
    (directory / "AGENTS.md").write_text("# Contract\n\nDo what you are asked.\n", encoding="utf-8")
    lines = ["x-claw:", "  pod: large", "  cllama-defaults: {proxy: passthrough}", "services:"]
    for number in range(agents):
        lines += [
            f"  agent-{number}:",
            f"    image: runner:1.{number}",
            "    environment:",
            f"      NAME: agent {number}",
        ]
        lines += [
            "      LEVEL: ${LEVEL:-info}",
            "    x-claw:",
            "      agent: AGENTS.md",
            f"      feeds: [news-{number}]",
        ]
        lines += ["      tools:"]
        for offset in range(OF_AN_AGENT):
            names = ", ".join(f"look_{tool}" for tool in range(1 + offset % TOOLS))
            lines += [
                f"        - service: api-{(number * 2 + offset) % services}",
                f"          allow: [{names}]",
            ]
    for number in range(services):
        file = f"api/api-{number}.json"
        (directory / file).write_text(json.dumps(_descriptor(number), indent=2), encoding="utf-8")
        lines += [
            f"  api-{number}:",
            f"    image: api:1.{number}",
            '    expose: ["8080"]',
            "    environment:",
        ]
        lines += ["      - API_TOKEN=$TOKEN", f"    x-claw: {{describe-file: {file}}}"]
    pod = directory / "claw-pod.yml"
    pod.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return pod


def _descriptor(number: int) -> dict[str, object]:
    text = {"type": "string", "description": "What is looked at.", "maxLength": 100}
    schema = {
        "type": "object",
        "properties": {
            "id": text,
            "deep": {"type": "boolean"},
            "n": {"type": "integer", "minimum": 1},
        },
        "required": ["id"],
    }
    tools = [
        {
            "name": f"look_{tool}",
            "description": f"Look at thing number {tool} of service {number}.",
            "inputSchema": schema,
            "http": {"method": "GET", "path": f"/look/{tool}/{{id}}"},
            "annotations": {"readOnly": True},
        }
        for tool in range(TOOLS)
    ]
    feeds = [{"name": f"news-{number}", "path": "/news", "ttl": 60, "description": "News."}]
    auth = {"type": "bearer", "env": "API_TOKEN"}
    return {
        "version": 2,
        "description": f"Service {number}",
        "feeds": feeds,
        "auth": auth,
        "tools": tools,
    }


def check(pod: Path) -> float:
    """Return the CPU seconds of ``claw check``, in a process of its own."""
    program = "import sys; from claw_cli.app import main; sys.argv[0] = 'claw'; main()"
    command = [sys.executable, "-c", program, "check", str(pod)]
    child = os.posix_spawn(
        command[0],
        command,
        {**os.environ, **ENVIRON},
        file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)],
    )
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"the check failed: {status}")
    return used.ru_utime + used.ru_stime


def profile(pod: Path) -> None:
    """Print a profile of a check, once everything is imported."""
    from claw_compile.compiler import (
        check_pod,
    )  # only the process that is measured imports the compiler

    measured = cProfile.Profile()
    result = measured.runcall(check_pod, pod, ENVIRON)
    assert result.value is not None, [each.message for each in result.diagnostics][:3]
    pstats.Stats(measured).sort_stats("cumulative").print_stats(45)
    pstats.Stats(measured).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("services", 200), ("agents", 100), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        small = make_pod(Path(place, "small"), 1, 1)
        large = make_pod(Path(place, "large"), options.services, options.agents)
        if options.profile:
            profile(large)
            return
        times = [(check(small), check(large)) for _ in range(options.rounds)]
    started, whole = (median(column) for column in zip(*times, strict=True))
    print(
        f"claw check, {options.services} services with {TOOLS} tools each, "
        f"{options.agents} agents: {whole:.2f} s of CPU"
    )
    print(f"of which a start (a pod of one service and one agent): {started:.2f} s")


if __name__ == "__main__":
    main()
