"""The MCP server of a service of the pod, and what must not be written of it.

The server is started by a command, or reached at an address.

Rules. A stdio server gets the shell's environment and the variables that the pod gives the service;
the pod's win. What is recorded of it is what the pod file says: ``${NAME}`` stays. Errors elsewhere
in the pod don't matter. Every value that came from a variable, and every variable that is named
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
from claw_compile.parsing.node import MapNode, child, items_of, scalars
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
        self.diagnostics = diagnostics
        self.code = code


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
    # The name becomes part of a path, and is printed.
    if spec is None or "/" in name or not name.isprintable():
        hint = did_you_mean(name, [each.name.text for each in loaded.value.pod.services])
        more = f"; {hint}" if hint else ""
        raise TargetError(f"{pod_file}: the pod has no service '{name}'{more}", code=2)

    return _Finder(pod_file, loaded.value, spec, loaded.diagnostics, environ).target(url)


@dataclass(frozen=True)
class _Finder:
    """The search for one service's server; ``diagnostics`` are those of loading the pod."""

    pod_file: Path
    loaded: LoadedPod
    spec: ServiceSpec
    diagnostics: tuple[Diagnostic, ...]
    environ: Mapping[str, str] = field(repr=False)

    def target(self, url: str | None) -> SnapshotTarget:
        """Return how the server is asked: by its command over stdio, or at a URL.

        A stdio server is asked by its command, unless ``url`` names its wrapper. Any other server
        is asked at ``url``, or where the pod says that it listens.
        """
        name = self.spec.name.text
        file = f"{DISCOVERED}/{name}{DESCRIPTOR_FILE}"
        if self.spec.tools_host is not None:
            run = f"mkdir -p {DISCOVERED} && claw tools describe --config toolhost.yml > {file}"
            why = f"'{name}' is a tools host; for tools of servers behind it, run: {run}"
            raise TargetError(f"{self.pod_file}: {why}")

        pod_variables = tuple(self._pod_variables())
        target = SnapshotTarget(
            service=name,
            file=self.pod_file.parent / file,
            mcp_path=self._mcp_path(),
            origin=self._origin(),
            directory=self.pod_file.parent,
            secrets=tuple(self._secrets(pod_variables)),
        )
        if self.spec.wraps_stdio and url is None:
            # The variables of the pod win over those of the shell.
            environ = dict(self.environ) | {each.name: each.text for each in pod_variables}
            return replace(target, command=self._command(), environ=environ)

        auth = self._auth()
        secret = secret_of(auth)
        secrets = target.secrets
        if isinstance(secret, Secret):
            secrets = (*secrets, secret)

        address = self._url(url)
        # The user's own URL may be shown; one of the pod may hold the value of a variable.
        shown_url = url or self._shown(address)
        return replace(target, url=address, shown_url=shown_url, auth=auth, secrets=secrets)

    def _command(self) -> tuple[str, ...]:
        stdio = self.spec.stdio
        declared_args = items_of(child(self.spec.body, "x-claw", "mcp-stdio", "args"))
        # An argument that can't be read is left out of ``args``: another command would be started.
        if stdio is None or len(stdio.args) != len(declared_args):
            own = [each for each in self.diagnostics if each.span.file == str(self.pod_file)]
            raise TargetError("", as_text(own))
        return (stdio.command.text, *(argument.text for argument in stdio.args))

    def _origin(self) -> JsonObject:
        """Return what the compiler compares with the pod: the command as written, or the image."""
        stdio = self.spec.stdio
        if stdio is not None:
            args = [argument.shown for argument in stdio.args]
            return {"command": stdio.command.shown, "args": args}

        image = written_image(self.spec)
        if image is None and child(self.spec.body, "build") is not None:
            pod = self.loaded.pod.name
            # What Compose calls what it builds.
            image = f"{pod.text if pod else ''}-{self.spec.name.text}"
        return {"image": image} if image is not None else {}

    @property
    def _described_path(self) -> str | None:
        """Return the path of MCP in the service's descriptor; None for one without MCP."""
        service_descriptor = self.loaded.descriptors.get(self.spec.name.text)
        descriptor = service_descriptor.descriptor if service_descriptor is not None else None
        if not isinstance(descriptor, DescriptorV2) or descriptor.mcp is None:
            return None
        return descriptor.mcp.path

    def _mcp_path(self) -> str:
        """Return the path that the snapshot records."""
        path = self.spec.mcp_path
        if path is None:
            return self._described_path or _DEFAULT_PATH

        # One with a variable is not recorded: a compile takes the pod's own before the snapshot's.
        return path.text if path.text == path.shown else _DEFAULT_PATH

    def _speaks_mcp(self) -> bool:
        return self.spec.mcp_path is not None or self._described_path is not None

    def _url(self, url: str | None) -> str:
        """Return the address of the server: ``url`` if it is given, else as the pod says."""
        path = self.spec.mcp_path.text if self.spec.mcp_path is not None else self._mcp_path()
        if url is not None:
            return _with_path(url, path)

        if not self._speaks_mcp():
            remedy = (
                "give it 'x-claw.mcp-stdio' or 'x-claw.mcp', or say where it listens: --url "
                "http://HOST:PORT/mcp"
            )
            name = self.spec.name.text
            raise TargetError(f"{self.pod_file}: '{name}' is no MCP server: {remedy}")

        diagnostics: list[Diagnostic] = []
        base = base_url(self.spec, self.loaded.variables.lookup, diagnostics)
        if base is None:
            raise TargetError("", as_text(diagnostics))
        return base.rstrip("/") + path

    def _shown(self, url: str) -> str:
        """Return the URL as the pod file has it: with ``${NAME}`` for what came from a variable."""
        texts: list[str] = []
        for key in ("expose", "ports"):
            node = child(self.spec.body, key)
            if node is not None:
                texts.extend(scalar.text for scalar in scalars(node))
        if self.spec.base_url is not None:
            texts.append(self.spec.base_url.shown)

        names = dict.fromkeys(name for text in texts for name in references(text))
        for name in names:
            value = self.loaded.variables.lookup(name)
            if value:
                url = url.replace(value, f"${{{name}}}")
        return url

    def _auth(self) -> Auth:
        """Return the credential that the pod gives for this service, with its value."""
        name = self.spec.name.text
        diagnostics: list[Diagnostic] = []
        auth = project_auth(
            self.loaded.pod,
            self.spec,
            self.loaded.descriptors.get(name),
            self.loaded.variables.lookup,
            diagnostics,
        )
        if auth is None:
            raise TargetError("", as_text(diagnostics))

        reference = secret_of(auth)
        if not isinstance(reference, SecretRef):
            return auth

        # The manifest has the name of a secret, and the proxy its value: here it is filled in.
        value = self.loaded.secrets.get(reference.secret)
        if not value or HEADER_VALUE.fullmatch(value) is None:
            why = "can't be sent in a header" if value else "is not known here: set it"
            raise TargetError(f"{self.pod_file}: the secret '{reference.secret}' of '{name}' {why}")
        member = "password" if isinstance(auth, BasicAuth) else "token"
        return auth.model_copy(update={member: Secret(value)})

    def _pod_variables(self) -> Iterator[LeakInput]:
        """Yield the service's variables, those of ``env_file`` first: ``environment`` wins."""
        diagnostics: list[Diagnostic] = []
        files = Files(self.pod_file.parent, diagnostics)
        inputs = LeakInputs(self.loaded.pod, files, self.loaded.variables, {}, {})
        container = Container(inputs, self.spec, "", ())
        for key in ("env_file", "environment"):
            entry = self.spec.body.get(key) if self.spec.body is not None else None
            if entry is not None:
                yield from container.inputs(MapNode((entry,), entry.key.span))

        for variable in variables(self.spec.environment, self.loaded.variables.lookup):
            problems = variable.value.problems
            diagnostics.extend(problem_at(variable.node, problem) for problem in problems)
        if has_errors(diagnostics):
            raise TargetError("", as_text(diagnostics))

    def _secrets(self, pod_variables: tuple[LeakInput, ...]) -> Iterator[Secret]:
        """Yield every value that must not be written, in a fixed order."""
        lookup = self.loaded.variables.lookup
        values = {*self.loaded.secrets.values()}
        for variable in pod_variables:
            came_from_variable = any(lookup(name) for name in variable.refers)
            if came_from_variable or _is_credential(variable.name):
                values.add(variable.text)

        # A command may take a credential as an argument.
        stdio = self.spec.stdio
        nodes = [stdio.command, *stdio.args] if stdio is not None else []
        for node in nodes:
            values.update(lookup(name) or "" for name in references(node.shown))

        # The server gets the whole shell, of which only what looks like a credential counts.
        shell = {**self.loaded.variables.dotenv, **self.environ}
        for name, value in shell.items():
            is_word = len(value) < _MIN_WORD or value.isalpha()
            if _is_credential(name) and not is_word:
                values.add(value)

        for value in sorted(values - {""}):
            yield Secret(value)


def _with_path(url: str, path: str) -> str:
    """Return the URL of ``--url``: its own path counts, and without one the server's."""
    try:
        base = checked_base_url(url)
    except ValueError as error:
        message = f"--url: {error}; a credential belongs into 'auth' of the service"
        raise TargetError(message, code=2) from None

    has_path = "/" in base.partition("://")[2].rstrip("/")
    return base if has_path else base.rstrip("/") + path


def _is_credential(variable: str) -> bool:
    return is_key_variable(variable) or _CREDENTIAL.search(variable) is not None
