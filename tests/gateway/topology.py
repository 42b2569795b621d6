"""A transparent pod in network namespaces: a runner, its proxy, a provider, and a tool service that
the runner can't reach.

    compose      runner ── net1 ── proxy ── net2 ── world      the providers' names lead to the proxy; no route to anywhere
    classic      runner ── net1 ── proxy ── net2 ── world      the names are the provider's; the proxy is the way out
    kubernetes   runner = proxy ── net2 ── world               one network for both; the runner is known by its user

Behind net3 are the tool service and ``SHELF``, a service on which the runner has a surface: in
kubernetes it is reached from here, and in a pod of Compose on a network of its own. The proxy's
namespace forwards packets, as in a container of Docker, and everybody has a route back: only the
rules hold traffic off. They, the proxy's command and its environment, and the runner's environment
are the compiler's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from tests.gateway.certificates import Authority
from tests.gateway.compiled import SEEN_AT, CompiledPod, compiled, with_authority
from tests.gateway.namespaces import Namespace, v4, v6
from tests.peers import Provider, Service
from tests.proxy.pod import ROOT, Pod
from tests.waiting import DEADLINE

type Form = Literal["compose", "classic", "kubernetes"]

GOVERNED = ("api.openai.com", "api.anthropic.com")
OTHER = "other.test"
OF_CODEX = ("chatgpt.com", "ab.chatgpt.com", "github.com", "api.github.com")
"""Names that Codex asks for beside its model's. Nobody resolves names here, and each would take it
five seconds.
"""
PROXY, PROVIDER, ELSEWHERE, DESK = v4("net1", 1), v4("net2", 2), v4("net2", 3), v4("net3", 2)
SHELF, SHELF_PORT = v4("net3", 3), 9000
PUBLIC = "198.51.100.2"
"""A public address of the provider's namespace."""
PROXY_6, PROVIDER_6 = v6("net1", 1), v6("net2", 2)
RUNNER_UID = 1500
_AS = ("setpriv", "--clear-groups", "--bounding-set=-all", "--no-new-privs", "--pdeathsig=KILL")


@dataclass
class TransparentPod(Pod):
    """The compiled proxy, in its namespace, as its own user and without any capability."""

    parts: CompiledPod = field(kw_only=True)
    within: Namespace = field(kw_only=True)

    def env(self) -> dict[str, str]:
        needed = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        return needed | self.parts.environment | self.environment

    def run(self) -> None:
        uid = str(self.parts.uid)
        self.launcher = (*self.within.entering(), *_AS, "--reuid", uid, "--regid", uid)
        self.start(*self.parts.arguments)

    def _ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the proxy ended: {self.said()}"
        return self.within.inside(_says_ready)


def _says_ready() -> bool:
    try:
        with urllib.request.urlopen("http://127.0.0.1:8080/ready", timeout=2) as response:
            return bool(response.status == 200)
    except OSError:
        return False


@dataclass(frozen=True)
class Topology:
    """The whole topology, running.

    ``open``: a service at other ports and without TLS, where nothing may arrive.
    """

    form: Form
    home: Path
    runner: Namespace
    gateway: Namespace
    world: Namespace
    tools: Namespace
    provider: Provider
    elsewhere: Service
    open: Service
    desk: Service
    shelf: Service
    pod: TransparentPod
    provider_ca: Authority

    @property
    def leads(self) -> str:
        """Return the address to which providers' names lead the runner."""
        return PROXY if self.form == "compose" else PROVIDER

    @property
    def front(self) -> str:
        """Return the address of the other entrances for the runner."""
        return "127.0.0.1" if self.form == "kubernetes" else PROXY

    @property
    def runner_env(self) -> dict[str, str]:
        return self.pod.parts.runner

    @property
    def token(self) -> str:
        return self.runner_env["OPENAI_API_KEY"]

    @property
    def bundle(self) -> str:
        """Return the path of the CAs that the runner trusts, in this process's file system."""
        return str(self.home / "pod" / ".claw-ca" / "public" / "ca-bundle.pem")

    def runs(self, *command: str, work: str = "") -> str:
        """Run a program as the runner, with its compiled environment and HOME, as
        container engines do; return the output.
        """
        whole = [
            *self.runner.entering(),
            *_AS,
            "--reuid",
            str(RUNNER_UID),
            "--regid",
            str(RUNNER_UID),
            *command,
        ]
        env = {"HOME": "/", **self.runner_env}
        done = subprocess.run(
            whole,
            input=work,
            capture_output=True,
            text=True,
            check=False,
            env=env,
            timeout=DEADLINE,
        )
        assert done.returncode == 0, f"{done.stderr}\nthe proxy said: {self.pod.said()}"
        return done.stdout

    def forget(self) -> None:
        """Clear the records of the peers."""
        for peer in (self.provider, self.elsewhere, self.open, self.desk, self.shelf):
            peer.received.clear()
        self.provider.forget_script()


@contextmanager
def topology(home: Path, form: Form, egress: str = "deny") -> Iterator[Topology]:
    """Set everything up, yield it, and remove it whatever fails.

    Raises ``RefusedError`` if the kernel makes no namespaces.
    """
    with ExitStack() as ends:
        runner, gateway, world, tools = _joined(ends, form)
        desk, shelf = Service(), Service()
        for service, places in (
            (desk, ((DESK, 4000), (DESK, 80))),
            (shelf, ((SHELF, SHELF_PORT), (SHELF, 80))),
        ):
            service.start(*(tools.listener(*place) for place in places))
            ends.callback(service.stop)
        shared = home / "pod"
        shared.mkdir()
        authority = Authority(home, "provider-ca")
        provider, elsewhere, plain = _world(ends, home, world, authority)
        parts = compiled(
            shared, "kubernetes" if form == "kubernetes" else "compose", desk.url, egress
        )
        with_authority(shared, public=home / "other-ca.pem")
        gateway.run("nft", parts.rules)
        _files(home, shared, parts, authority.certificate)
        seen = {gateway: shared, runner: shared / ".claw-ca" / "public"}
        for namespace, files in seen.items():
            namespace.opened_to_all(Path(sys.base_prefix), Path(sys.prefix), ROOT)
            namespace.shows(files, SEEN_AT)
            to_proxy = parts.led if namespace is runner else parts.own
            namespace.shows(
                _hosts(home, to_proxy if form == "compose" else frozenset()), "/etc/hosts"
            )
        pod = TransparentPod(shared, provider, desk, parts=parts, within=gateway)
        pod.environment["SSL_CERT_FILE"] = f"{SEEN_AT}/provider-ca.pem"
        pod.environment |= {"CLLAMA_KEEPALIVE_FIRST_MS": "300", "CLLAMA_KEEPALIVE_MS": "200"}
        ends.callback(pod.stop)
        pod.run()
        yield Topology(
            form,
            home,
            runner,
            gateway,
            world,
            tools,
            provider,
            elsewhere,
            plain,
            desk,
            shelf,
            pod,
            authority,
        )


def _joined(ends: ExitStack, form: Form) -> list[Namespace]:
    def made(network: Namespace | None = None) -> Namespace:
        namespace = Namespace(network)
        ends.callback(namespace.close)
        return namespace

    gateway, world, tools = made(), made(), made()
    runner = made(gateway if form == "kubernetes" else None)
    for other, name in ((world, "net2"), (tools, "net3")):
        gateway.joined(other, name, 1, 2)
        _way_out(other, name)
    world.addressed("net2", 3)
    tools.addressed("net3", 3)
    world.ip(f"addr add {PUBLIC}/32 dev net2")
    gateway.ip(f"route add {PUBLIC}/32 via {PROVIDER}")
    if form != "kubernetes":
        gateway.joined(runner, "net1", 1, 2)
        gateway.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
    if form == "classic":
        _way_out(runner, "net1")
    return [runner, gateway, world, tools]


def _way_out(namespace: Namespace, name: str) -> None:
    namespace.ip(f"route add default via {v4(name, 1)}", f"route add ::/0 via {v6(name, 1)}")


def _world(
    ends: ExitStack, home: Path, world: Namespace, authority: Authority
) -> tuple[Provider, Service, Service]:
    """Start and return the provider, another host with a certificate of another CA,
    and the listeners without TLS.
    """
    provider, elsewhere, plain = Provider(), Service(), Service()
    certificate = authority.signs(*GOVERNED)
    provider.start(
        world.listener(PROVIDER, 443), world.listener(PROVIDER_6, 443), certificate=certificate
    )
    elsewhere.start(
        world.listener(ELSEWHERE, 443), certificate=Authority(home, "other-ca").signs(OTHER)
    )
    open_at = [(host, port) for host in (PROVIDER, PROVIDER_6) for port in (80, 8443)]
    open_at += [(PUBLIC, 53), (PUBLIC, SHELF_PORT), (ELSEWHERE, 80)]
    plain.start(*(world.listener(*place) for place in open_at))
    for peer in (provider, elsewhere, plain):
        ends.callback(peer.stop)
    return provider, elsewhere, plain


def _files(home: Path, shared: Path, parts: CompiledPod, authority: Path) -> None:
    """Write the files that the proxy gets, and make the directories that it may write to."""
    (shared / "provider-ca.pem").write_bytes(authority.read_bytes())
    for name in ("history", "state", "tmp", "home"):
        (shared / name).mkdir()
    for at, _, files in os.walk(shared):
        for name in ("", *files):
            os.chown(Path(at, name), parts.uid, parts.uid)
    home.chmod(0o755)


def _hosts(home: Path, to_proxy: frozenset[str]) -> Path:
    """Write a hosts file in which the providers' names lead to the proxy, or to the
    providers; return it.
    """
    file = home / f"hosts-{len(to_proxy)}"
    places = {name: PROXY if name in to_proxy else PROVIDER for name in GOVERNED}
    places |= dict.fromkeys(OF_CODEX, "127.0.0.1")
    places |= {OTHER: ELSEWHERE, "localhost": "127.0.0.1", "cllama": "127.0.0.1"}
    file.write_text(
        "".join(f"{address} {name}\n" for name, address in places.items()), encoding="utf-8"
    )
    return file
