"""Each runtime trusts the pod's CA by the variable in certs/README.md, through the real proxy."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
import openai
import pytest

from tests.certs.example_cas import INSIDE, OUTSIDE, pods_ca
from tests.certs.runtimes import RUNTIMES, Runtime
from tests.peers import text
from tests.proxy.pod import ROOT, Pod, headers, pod_at

README = (ROOT / "certs" / "README.md").read_text(encoding="utf-8")
EDITOR = ROOT / "pods" / "research" / "expected" / "agents" / "editor" / "env"
BUNDLE, ALONE = "ca-bundle.pem", "ca-cert.pem"


@pytest.fixture(scope="module")
def pod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """Yield a proxy that uses the pod's CA and can't write to its directory; it governs one host
    that the CA does not cover.
    """
    home = tmp_path_factory.mktemp("pod")
    pods_ca(home / "ca", INSIDE)
    with pod_at(home) as pod:
        pod.agent("analyst", pod.tool("balance"))
        private = home / "ca" / "private"
        pod.environment |= {"CLLAMA_CA": str(private), "CLLAMA_HOSTS": f"{OUTSIDE}=openai"}
        read_only = f'mount --bind -o ro "{private}" "{private}" && exec "$@"'
        pod.launcher = ("unshare", "--map-root-user", "--mount", "sh", "-ec", read_only, "sh")
        if subprocess.run([*pod.launcher, "true"], capture_output=True, check=False).returncode:
            # the kernel gives this user no namespace: the CA is then writable, and the rest is still
            # tested
            pod.launcher = ()
        pod.start()
        yield pod


def asked(
    pod: Pod, runtime: Runtime, hosts: Sequence[str], directory: Path, trusts: bool
) -> list[tuple[bool, str]]:
    """Ask each host, in one process if the runtime can; return (True if our answer
    arrived, all that was said of it).

    A host behind a hyphen is asked without the variable.
    """
    if len(hosts) > 1 and not runtime.takes_more:
        return [
            answer
            for host in hosts
            for answer in asked(pod, runtime, [host], directory / host, trusts)
        ]
    directory.mkdir(parents=True)
    public = pod.home / "ca" / "public"
    proxy = f"http://127.0.0.1:{pod.proxy_port}"
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(directory),
        "HTTPS_PROXY": proxy,
        "https_proxy": proxy,
    }
    if trusts and runtime.variable is not None:
        environment[runtime.variable] = str(public / (ALONE if runtime.adds else BUNDLE))
    urls = [f"{'-' * host.startswith('-')}https://{host.removeprefix('-')}/" for host in hosts]
    command = [*runtime.command(urls[0], directory, public), *urls[1:]]
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    outputs = result.stdout.split("\f") if runtime.takes_more else [result.stdout + result.stderr]
    assert len(outputs) == len(hosts), result
    return [
        (result.returncode == 0 if runtime.answered is None else runtime.answered in said, said)
        for said in outputs
    ]


@pytest.mark.requirement("certs:runtimes")
@pytest.mark.parametrize("runtime", RUNTIMES, ids=lambda runtime: runtime.name)
def test_a_runtime_trusts_the_proxy_for_governed_hosts_and_nobody_for_others(
    pod: Pod, runtime: Runtime, tmp_path: Path
) -> None:
    """Ask with the variable, once for a host outside the CA's constraints, and without it."""
    hosts = [INSIDE, OUTSIDE, *([f"-{INSIDE}"] if runtime.forgets else [])]
    (answered, said), *refusals = asked(pod, runtime, hosts, tmp_path / "with", trusts=True)
    assert answered, said
    if runtime.variable is not None and not runtime.forgets:
        refusals += asked(pod, runtime, [INSIDE], tmp_path / "without", trusts=False)
    for answered, said in refusals:
        assert not answered, said
        assert any(each in said for each in runtime.refused), said


@pytest.mark.requirement("certs:runtimes")
def test_a_turn_goes_through_the_pods_ca(pod: Pod) -> None:
    pod.provider.says(text("Sound."))
    context = ssl.create_default_context(cafile=str(pod.home / "ca" / "public" / ALONE))
    with (
        httpx2.Client(
            proxy=f"http://127.0.0.1:{pod.proxy_port}", verify=context, trust_env=False, timeout=60
        ) as client,
        openai.OpenAI(
            base_url=f"https://{INSIDE}/v1", api_key=pod.token(), max_retries=0, http_client=client
        ) as sdk,
    ):
        answer = sdk.chat.completions.create(
            model="gpt-test", messages=[{"role": "user", "content": "Go"}]
        )
    assert answer.choices[0].message.content == "Sound."


@pytest.mark.requirement("certs:one-name")
def test_a_certificate_is_for_the_requested_name_and_not_for_the_dialled_address(pod: Pod) -> None:
    """A transparent proxy knows both the name and the address.

    A CA that excludes addresses could not sign for both.
    """
    pod.provider.says(text("Sound."))
    context = ssl.create_default_context(cafile=str(pod.home / "ca" / "public" / ALONE))
    with httpx2.Client(
        proxy=f"http://127.0.0.1:{pod.proxy_port}", verify=context, trust_env=False, timeout=60
    ) as client:
        answer = client.post(
            "https://127.0.0.1:1/v1/chat/completions",
            headers=headers(pod, "analyst"),
            json={"model": "gpt-test", "messages": [{"role": "user", "content": "Go"}]},
            extensions={"sni_hostname": INSIDE},
        )
    assert answer.json()["choices"][0]["message"]["content"] == "Sound."


@pytest.mark.requirement("certs:told")
def test_a_governed_host_outside_the_ca_is_logged_once_with_the_remedy(
    pod: Pod,
) -> None:
    for _ in range(2):
        with (
            pytest.raises(httpx2.ConnectError),
            httpx2.Client(
                proxy=f"http://127.0.0.1:{pod.proxy_port}", trust_env=False, timeout=60
            ) as client,
        ):
            client.get(f"https://{OUTSIDE}/")
    (event,) = [event for event in pod.log() if event.get("error") == "ca_does_not_cover"]
    assert event["host"] == OUTSIDE
    assert "claw certs rotate" in event["reason"]


@pytest.mark.requirement("certs:runtimes")
def test_the_page_lists_each_runtime_and_runners_get_its_variables() -> None:
    lines = re.findall(r"^\| ([^|]+?) \| `(\w+)` \| (adds|replaces) \|", README, re.MULTILINE)
    tried = {
        (each.name, each.variable, "adds" if each.adds else "replaces")
        for each in RUNTIMES
        if each.variable
    }
    by_hand = {
        ("Codex", "CODEX_CA_CERTIFICATE", "adds"),
        ("AWS's SDKs", "AWS_CA_BUNDLE", "replaces"),
    }
    assert set(lines) == tried | by_hand
    compiled = dict(line.split("=", 1) for line in EDITOR.read_text(encoding="utf-8").splitlines())
    given = {
        (name, Path(path).name)
        for name, path in compiled.items()
        if path.startswith("/etc/ssl/claw/")
    }
    assert given == {(variable, ALONE if how == "adds" else BUNDLE) for _, variable, how in lines}
    java = re.search(r"^\| Java \| .*keytool", README, re.MULTILINE)
    assert java is not None
