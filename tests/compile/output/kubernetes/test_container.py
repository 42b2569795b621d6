"""A service of Compose as a container of Kubernetes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compile.composed import agent
from tests.compile.manifests import compiled, manifests, spec_of


@pytest.mark.requirement("kubernetes:carried")
def test_a_compose_service_becomes_a_deployment_a_service_and_its_claims(tmp_path: Path) -> None:
    rest = """  full:
    image: full:${TAG:-1}
    entrypoint: /entry --flag "two words"
    command: [run, "$$HOME"]
    working_dir: /work
    user: "1000:2000"
    tty: true
    read_only: true
    cap_add: [CAP_NET_BIND_SERVICE]
    expose: ["53/udp"]
    healthcheck: {test: curl -f x, interval: 1m30s, timeout: 5s, retries: 4}
    tmpfs: ["/run:size=1m"]
    volumes: ["data:/data:ro", {type: volume, source: logs, target: /logs}]
    deploy: {replicas: 3}
volumes: {data: , logs: }
"""
    objects = manifests(tmp_path, agent(rest=rest))
    assert objects["Deployment", "desk-full"]["spec"]["replicas"] == 3
    (container,) = spec_of(objects, "desk-full")["containers"]
    assert container["image"] == "full:1"
    assert container["command"] == ["/entry", "--flag", "two words"]
    assert container["args"] == ["run", "$HOME"]
    assert container["securityContext"] == {
        "runAsUser": 1000,
        "runAsGroup": 2000,
        "readOnlyRootFilesystem": True,
        "capabilities": {"add": ["NET_BIND_SERVICE"]},
    }
    assert container["livenessProbe"] == {
        "exec": {"command": ["/bin/sh", "-c", "curl -f x"]},
        "periodSeconds": 90,
        "timeoutSeconds": 5,
        "failureThreshold": 4,
    }
    assert [(mount["mountPath"], mount["readOnly"]) for mount in container["volumeMounts"]] == [
        ("/run", False),
        ("/data", True),
        ("/logs", False),
    ]
    assert spec_of(objects, "desk-full")["volumes"][0]["emptyDir"] == {
        "medium": "Memory",
        "sizeLimit": "1Mi",
    }
    assert objects["Service", "full"]["spec"]["ports"] == [
        {"name": "udp-53", "port": 53, "protocol": "UDP"}
    ]
    assert ("PersistentVolumeClaim", "desk-data.volume") in objects


@pytest.mark.requirement("kubernetes:carried")
@pytest.mark.parametrize(
    ("compose", "limit"),
    [
        ("tmpfs: /t", None),
        ("tmpfs: ['/t:mode=1777,size=64m']", "64Mi"),
        ("tmpfs: ['/t:size=100000']", "100000"),
        ("tmpfs: ['/t:size=1G,exec']", "1Gi"),
        ("tmpfs: ['/t:size=0']", None),
        ("volumes: [{type: tmpfs, target: /t}]", None),
        ("volumes: [{type: tmpfs, target: /t, tmpfs: {size: 512kb}}]", "512Ki"),
        ("volumes: [{type: tmpfs, target: /t, tmpfs: {size: 4096}}]", "4096"),
    ],
)
def test_a_tmpfs_has_the_size_that_the_pod_file_gives_it(
    tmp_path: Path, compose: str, limit: str | None
) -> None:
    objects = manifests(tmp_path, agent(rest=f"  full:\n    image: x\n    {compose}\n"))
    (volume,) = spec_of(objects, "desk-full")["volumes"]
    assert volume["emptyDir"] == {"medium": "Memory"} | ({"sizeLimit": limit} if limit else {})


@pytest.mark.requirement("kubernetes:not-carried")
def test_a_size_of_a_tmpfs_that_kubernetes_has_no_word_for_is_reported(tmp_path: Path) -> None:
    result = compiled(tmp_path, agent(rest="  full:\n    image: x\n    tmpfs: ['/t:size=50%']\n"))
    reported = [each.message for each in result.diagnostics if each.code.name == "not-carried"]
    assert len(reported) == 1
    assert "'50%'" in reported[0]


@pytest.mark.requirement("kubernetes:commands")
@pytest.mark.parametrize(
    "word", ["$$(CLLAMA_TOKEN)", "$$$$", "$$$$(id)", "$$HOME", "a$$", "$$", "$$$$$$(", "$${A}"]
)
def test_a_command_means_what_it_means_in_compose(word: str, tmp_path: Path) -> None:
    compose = f"    command: [sh, -c, '{word}']\n    healthcheck: {{test: [CMD, '{word}']}}"
    (container,) = spec_of(manifests(tmp_path, agent(compose=compose)), "desk-one")["containers"]
    meant = word.replace("$$", "$")
    assert filled_in(container["args"][-1]) == meant
    assert filled_in(container["livenessProbe"]["exec"]["command"][0]) == meant


def filled_in(word: str) -> str:
    """Return what the kubelet makes of a word, with all names known
    (k8s.io/kubernetes/third_party/forked/golang/expansion).
    """
    return re.sub(
        r"\$(\$|\(([^)]*)\))",
        lambda match: "$" if match[1] == "$" else f"value of {match[2]}",
        word,
    )


@pytest.mark.requirement("kubernetes:carried")
@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("8000-8002", [("TCP", 8000), ("TCP", 8001), ("TCP", 8002)]),
        ("8000-8001/UDP", [("UDP", 8000), ("UDP", 8001)]),
        ("9000-9001:8000-8001", [("TCP", 8000), ("TCP", 8001)]),
        ("9000-9010:80", [("TCP", 80)]),
        ("8000-8099", [("TCP", port) for port in range(8000, 8100)]),
    ],
)
def test_each_port_of_a_range_is_one_of_the_service(
    tmp_path: Path, entry: str, expected: list[tuple[str, int]]
) -> None:
    objects = manifests(tmp_path, agent(rest=f"  full: {{image: x, ports: ['{entry}']}}\n"))
    ports = objects["Service", "full"]["spec"]["ports"]
    assert [(port["protocol"], port["port"]) for port in ports] == expected


@pytest.mark.requirement("kubernetes:not-carried")
@pytest.mark.parametrize(
    ("entry", "message", "remedy"),
    [
        ("8000-8100", "a range of 101 ports", "name the ports that are used, or smaller ranges"),
        ("8010-8000", "no port of TCP, UDP or SCTP", None),
        ("65000-70000", "no port of TCP, UDP or SCTP", None),
        ("http", "no port of TCP, UDP or SCTP", None),
    ],
)
def test_an_entry_of_ports_that_is_left_out_is_told_at_its_place(
    tmp_path: Path, entry: str, message: str, remedy: str | None
) -> None:
    pod = agent(rest=f"  full: {{image: x, expose: ['{entry}']}}\n")
    result = compiled(tmp_path, pod)
    (told,) = (each for each in result.diagnostics if each.code.name == "not-carried")
    assert message in told.message
    assert told.help == remedy
    assert pod.splitlines()[told.span.line - 1][told.span.column - 1 :].startswith(f"'{entry}'")


@pytest.mark.requirement("kubernetes:not-carried", "compile:no-traceback")
@pytest.mark.parametrize("value", ["9" * 5000, "2147483648", "٣"])
@pytest.mark.parametrize(
    ("key", "compose"),
    [
        ("replicas", "deploy: {{replicas: '{}'}}"),
        ("user", "user: '{}'"),
        ("group", "user: '1000:{}'"),
        ("interval", "healthcheck: {{test: x, interval: '{}s'}}"),
        ("start_period", "healthcheck: {{test: x, start_period: '{}h'}}"),
        ("retries", "healthcheck: {{test: x, retries: '{}'}}"),
    ],
)
def test_a_number_that_kubernetes_does_not_take_is_told_at_its_place(
    tmp_path: Path, key: str, compose: str, value: str
) -> None:
    pod = agent(rest=f"  full:\n    image: x\n    {compose.format(value)}\n")
    result = compiled(tmp_path, pod)
    assert result.value is not None
    (told,) = (each for each in result.diagnostics if each.code.name == "not-carried")
    assert key in told.message
    assert value[:9] in told.message
    assert told.help or told.code.remedy
    assert pod.splitlines()[told.span.line - 1].strip() == compose.format(value)


@pytest.mark.requirement("kubernetes:carried")
@pytest.mark.parametrize(
    ("duration", "seconds"), [("500ms", 1), ("1.5m", 90), ("1h", 3600), ("0s", None)]
)
def test_a_duration_is_in_whole_seconds_of_at_least_its_length(
    tmp_path: Path, duration: str, seconds: int | None
) -> None:
    rest = f"  full:\n    image: x\n    healthcheck: {{test: x, timeout: {duration}}}\n"
    (container,) = spec_of(manifests(tmp_path, agent(rest=rest)), "desk-full")["containers"]
    assert container["livenessProbe"].get("timeoutSeconds") == seconds
