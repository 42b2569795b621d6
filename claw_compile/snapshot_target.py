"""The MCP server behind a service of the pod: how it is started or reached, and
what must not be written of it.

Rules. A stdio server gets the shell's environment and what the pod gives the service; of that, the
pod wins. What is recorded of it is what the pod file says: ``${NAME}`` stays. Errors elsewhere in
the pod are not in the way. Every value that came from a variable, and every variable that is named
like a credential, counts as a secret.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from claw_compile.descriptors.snapshot import read_snapshot
from claw_compile.diagnostics.diagnostic import Diagnostic, did_you_mean, has_errors
from claw_compile.diagnostics.report import as_text
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.grammar.reader import problem_at
from claw_compile.loading.descriptor_lookup import DESCRIPTOR_FILE, DISCOVERED, written_image
from claw_compile.loading.files import MAX_BYTES, Files
from claw_compile.loading.leak_inputs import Container, LeakInput, LeakInputs, references
from claw_compile.loading.load import LoadedPod, load
from claw_compile.parsing.environment import variables
from claw_compile.parsing.node import MapNode, ScalarNode, child, items_of, scalars
from claw_compile.policy.connect import base_url
from claw_compile.policy.credentials import HEADER_VALUE, project_auth, secret_of
from claw_contract.base import JsonObject
from claw_contract.descriptor import DescriptorV2
from claw_contract.known_providers import is_key_variable
from claw_contract.manifest import Auth, BasicAuth, checked_base_url
from claw_contract.secret import Secret, SecretRef

_DEFAULT_PATH = "/mcp"
_CREDENTIAL = re.compile(
    r"(?:^|_)(?:KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASS|CREDENTIALS?|AUTH|DSN)(?:_|$)", re.IGNORECASE
)
_MIN_WORD = 8  # A shorter value of the shell, or one of letters only, is an ordinary word


class TargetError(Exception):
    """A pod or a service of it that can't be asked.

    ``diagnostics`` is text with places; ``code`` is the exit code.
    """

    def __init__(self, message: str, diagnostics: str = "", code: int = 1) -> None:
        super().__init__(message)
        self.diagnostics, self.code = diagnostics, code


@dataclass(frozen=True)
class SnapshotTarget:
    """One server.

    It has either a ``command`` with arguments and a whole environment, or a ``url`` with its
    ``auth``.
    """

    service: str
    file: Path
    mcp_path: str
    origin: JsonObject
    directory: Path
    command: tuple[str, ...] = field(default=(), repr=False)
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str = field(default="", repr=False)
    shown_url: str = ""
    auth: Auth | None = None
    secrets: tuple[Secret, ...] = ()

    def previous(self) -> tuple[bool, JsonObject | None]:
        """Return whether there is a snapshot, and its document; None for one that can't be read."""
        try:
            with self.file.open("rb") as file:
                return True, read_snapshot(file.read(MAX_BYTES))
        except FileNotFoundError:
            return False, None


def find_target(
    pod_file: Path, environ: Mapping[str, str], name: str, url: str | None
) -> SnapshotTarget:
    """Return the server of a service. ``url`` is where it is reached from here.

    Raise ``TargetError``.
    """
    loaded = load(pod_file, environ)
    if loaded.value is None:
        raise TargetError("", as_text(each for each in loaded.diagnostics if each.is_error))
    spec = loaded.value.pod.service(name)
    if spec is None or "/" in name or not name.isprintable():
        hint = did_you_mean(name, [each.name.text for each in loaded.value.pod.services])
        raise TargetError(
            f"{pod_file}: the pod has no service '{name}'{f'; {hint}' if hint else ''}", code=2
        )
    return _Finder(pod_file, loaded.value, spec, loaded.diagnostics, environ).target(url)


@dataclass(frozen=True)
class _Finder:
    pod_file: Path
    loaded: LoadedPod
    spec: ServiceSpec
    diagnostics: tuple[Diagnostic, ...]
    environ: Mapping[str, str] = field(repr=False)

    def target(self, url: str | None) -> SnapshotTarget:
        name = self.spec.name.text
        file = f"{DISCOVERED}/{name}{DESCRIPTOR_FILE}"
        if self.spec.tools_host is not None:
            remedy = (
                f"run: mkdir -p {DISCOVERED} && claw tools describe --config toolhost.yml > {file}"
            )
            raise TargetError(
                f"{self.pod_file}: '{name}' is a tools host; for tools of servers behind "
                f"it, {remedy}"
            )
        own = tuple(self._pod_variables())
        target = SnapshotTarget(
            name,
            self.pod_file.parent / file,
            self._mcp_path(),
            self._origin(),
            self.pod_file.parent,
            secrets=tuple(self._secrets(own)),
        )
        if self.spec.wraps_stdio and url is None:
            environ = dict(self.environ) | {each.name: each.text for each in own}
            return replace(target, command=self._command(), environ=environ)
        auth = self._auth()
        secret = secret_of(auth)
        secrets = (*target.secrets, *([secret] if isinstance(secret, Secret) else []))
        address = self._url(url)
        return replace(
            target, url=address, shown_url=url or self._shown(address), auth=auth, secrets=secrets
        )

    def _command(self) -> tuple[str, ...]:
        stdio = self.spec.stdio
        declared = items_of(child(self.spec.body, "x-claw", "mcp-stdio", "args"))
        if stdio is None or len(stdio.args) != len(declared):
            raise TargetError(
                "",
                as_text(each for each in self.diagnostics if each.span.file == str(self.pod_file)),
            )
        return (stdio.command.text, *(argument.text for argument in stdio.args))

    def _origin(self) -> JsonObject:
        """Return what the compiler compares with the pod: the command as it is
        written, or the image.
        """
        stdio, image = self.spec.stdio, written_image(self.spec)
        if stdio is not None:
            return {
                "command": stdio.command.shown,
                "args": [argument.shown for argument in stdio.args],
            }
        if image is None and child(self.spec.body, "build") is not None:
            pod = self.loaded.pod.name
            image = f"{pod.text if pod else ''}-{self.spec.name.text}"
        return {"image": image} if image is not None else {}

    def _mcp_path(self) -> str:
        path = self.spec.mcp_path
        if path is not None:
            return (
                path.text if path.text == path.shown else _DEFAULT_PATH
            )  # the pod's own wins over the snapshot's
        described = self.loaded.descriptors.get(self.spec.name.text)
        descriptor = described.descriptor if described is not None else None
        return (
            descriptor.mcp.path
            if isinstance(descriptor, DescriptorV2) and descriptor.mcp
            else _DEFAULT_PATH
        )

    def _speaks_mcp(self) -> bool:
        described = self.loaded.descriptors.get(self.spec.name.text)
        descriptor = described.descriptor if described is not None else None
        return self.spec.mcp_path is not None or (
            isinstance(descriptor, DescriptorV2) and descriptor.mcp is not None
        )

    def _url(self, url: str | None) -> str:
        path = self.spec.mcp_path.text if self.spec.mcp_path is not None else self._mcp_path()
        if url is not None:
            try:
                checked = checked_base_url(url)
            except ValueError as error:
                raise TargetError(
                    f"--url: {error}; a credential belongs into 'auth' of the service", code=2
                ) from None
            return (
                checked
                if checked.partition("://")[2].rstrip("/").count("/")
                else checked.rstrip("/") + path
            )
        name = self.spec.name.text
        if not self._speaks_mcp():
            remedy = (
                "give it 'x-claw.mcp-stdio' or 'x-claw.mcp', or say where it listens: --url "
                "http://HOST:PORT/mcp"
            )
            raise TargetError(f"{self.pod_file}: '{name}' is no MCP server: {remedy}")
        diagnostics: list[Diagnostic] = []
        base = base_url(self.spec, self.loaded.variables.lookup, diagnostics)
        if base is None:
            raise TargetError("", as_text(diagnostics))
        return base.rstrip("/") + path

    def _shown(self, url: str) -> str:
        """Return the URL as the pod file has it: with ``${NAME}`` for what came from a variable."""
        body, stated = self.spec.body, self.spec.base_url
        nodes = [node for key in ("expose", "ports") if (node := child(body, key)) is not None]
        texts = [
            *(scalar.text for node in nodes for scalar in scalars(node)),
            stated.shown if stated is not None else "",
        ]
        for name in dict.fromkeys(name for text in texts for name in references(text)):
            if value := self.loaded.variables.lookup(name):
                url = url.replace(value, f"${{{name}}}")
        return url

    def _auth(self) -> Auth:
        name, diagnostics = self.spec.name.text, list[Diagnostic]()
        lookup, described = self.loaded.variables.lookup, self.loaded.descriptors.get(name)
        auth = project_auth(self.loaded.pod, self.spec, described, lookup, diagnostics)
        if auth is None:
            raise TargetError("", as_text(diagnostics))
        if isinstance(reference := secret_of(auth), SecretRef):
            value = self.loaded.secrets.get(reference.secret)
            if not value or HEADER_VALUE.fullmatch(value) is None:
                why = "can't be sent in a header" if value else "is not known here: set it"
                raise TargetError(
                    f"{self.pod_file}: the secret '{reference.secret}' of '{name}' {why}"
                )
            field_name = "password" if isinstance(auth, BasicAuth) else "token"
            return auth.model_copy(update={field_name: Secret(value)})
        return auth

    def _pod_variables(self) -> Iterator[LeakInput]:
        """Yield the service's variables, those of ``env_file`` first: ``environment`` wins."""
        diagnostics: list[Diagnostic] = []
        files = Files(self.pod_file.parent, diagnostics)
        inputs = LeakInputs(self.loaded.pod, files, self.loaded.variables, {}, {})
        for key in ("env_file", "environment"):
            entry = self.spec.body.get(key) if self.spec.body is not None else None
            if entry is not None:
                yield from Container(inputs, self.spec, "", ()).inputs(
                    MapNode((entry,), entry.key.span)
                )
        for variable in variables(self.spec.environment, self.loaded.variables.lookup):
            diagnostics.extend(
                problem_at(variable.node, problem) for problem in variable.value.problems
            )
        if has_errors(diagnostics):
            raise TargetError("", as_text(diagnostics))

    def _secrets(self, pod_variables: tuple[LeakInput, ...]) -> Iterator[Secret]:
        lookup = self.loaded.variables.lookup
        values = {
            each.text
            for each in pod_variables
            if any(map(lookup, each.refers)) or _is_credential(each.name)
        }
        values |= set(self.loaded.secrets.values())
        stdio = self.spec.stdio
        nodes: list[ScalarNode] = [stdio.command, *stdio.args] if stdio is not None else []
        values |= {lookup(name) or "" for node in nodes for name in references(node.shown)}
        shell = {**self.loaded.variables.dotenv, **self.environ}
        values |= {
            value
            for name, value in shell.items()
            if _is_credential(name) and len(value) >= _MIN_WORD and not value.isalpha()
        }
        yield from (Secret(value) for value in sorted(values) if value)


def _is_credential(variable: str) -> bool:
    return is_key_variable(variable) or _CREDENTIAL.search(variable) is not None
