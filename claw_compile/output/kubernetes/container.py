"""A Compose service as a container of Kubernetes.

Keys with a counterpart are carried over, and the others are reported.

Rules. Variables are filled in here, since kubectl fills in none; so every value of ``environment``
goes into a Secret.
"""

import math
import re
import shlex
from dataclasses import dataclass, field
from typing import cast

from claw_compile import codes
from claw_compile.diagnostics.diagnostic import Diagnostic, quote
from claw_compile.grammar.pod import ServiceSpec
from claw_compile.grammar.reader import problem_at
from claw_compile.output.kubernetes.objects import Object, object_name
from claw_compile.output.yaml_text import Data
from claw_compile.parsing.environment import Lookup, interpolate, variables
from claw_compile.parsing.node import Entry, ListNode, MapNode, Node, ScalarNode, child, items_of
from claw_compile.policy.connect import MAX_PORT
from claw_contract.durations import parse_duration
from claw_contract.whole_numbers import MAX_INT32, whole_number

_ELSEWHERE = {
    "image",
    "build",
    "environment",
    "expose",
    "networks",
    "x-claw",
    "init",
    "container_name",
    "deploy",
    "restart",
}
"""Keys that are read elsewhere, or that a Deployment covers by itself."""
_COMMANDS = {"entrypoint": "command", "command": "args"}
_SECURITY = {"user", "read_only", "cap_add", "cap_drop", "privileged"}
_FLAGS = {"stdin_open": "stdin", "tty": "tty"}
_PARTLY_CARRIED = {"ports": "a port is reached in the cluster only, by who may"}
"""Keys of which a part is not carried over, with that part for the message.

A port itself is carried over (``Converter.ports``), and its publishing is not.
"""
_PORTS = re.compile(r"(?P<first>[0-9]{1,5})(-(?P<last>[0-9]{1,5}))?(/(?P<protocol>[a-z]+))?")
_MAX_RANGE = 100
"""The most ports of one range: a Service of Kubernetes has no ranges, and lists each port."""
_TIMES = {
    "interval": "periodSeconds",
    "timeout": "timeoutSeconds",
    "start_period": "initialDelaySeconds",
}
_PROTOCOLS = {"TCP", "UDP", "SCTP"}
_VARIABLE = re.compile(r"\$(?=[$(])")
_SIZE = re.compile(r"(?P<number>[0-9]{1,18})(?P<unit>[bkmg])?b?")
_SIZE_UNITS = {"b": "", "k": "Ki", "m": "Mi", "g": "Gi"}


@dataclass
class Converter:
    """The conversion of one service.

    ``volumes`` are those of its pod, ``claims`` the named volumes that it needs.
    """

    spec: ServiceSpec
    lookup: Lookup
    pod: str
    diagnostics: list[Diagnostic]
    volumes: list[Data] = field(default_factory=list)
    mounts: list[Data] = field(default_factory=list)
    claims: set[str] = field(default_factory=set)

    @property
    def body(self) -> MapNode:
        assert self.spec.body is not None
        return self.spec.body

    def container(self) -> Object:
        """Return the container, without ``volumeMounts``: more may come to ``mounts``."""
        result: Object = {"name": "main", "image": self._image()}
        for entry in sorted(self.body.entries, key=lambda each: each.key.text):
            self._key(entry, result)
        return result

    def environment(self) -> dict[str, bytes]:
        """Return name → value of the service's variables, those of the operator filled in."""
        values: dict[str, bytes] = {}
        for variable in variables(self.body.value("environment"), self.lookup):
            problems = variable.value.problems
            self.diagnostics.extend(problem_at(variable.node, problem) for problem in problems)
            values[variable.name] = variable.value.text.encode()
        return values

    def ports(self) -> list[tuple[int, str]]:
        """Return the container's ports, of ``expose`` and of ``ports``, each once."""
        ports: set[tuple[int, str]] = set()
        for key in ("expose", "ports"):
            for item in items_of(self.body.value(key)):
                ports |= self._item_ports(item)
        return sorted(ports)

    def _item_ports(self, item: Node) -> set[tuple[int, str]]:
        """Return number and protocol of each port of an entry, and report one that can't be read.

        An entry is ``8080``, ``8000-8010/udp``, ``127.0.0.1:80:8080/tcp``, or a mapping.
        """
        target = item.value("target") if isinstance(item, MapNode) else item
        text = self._text(target).strip().lower() if isinstance(target, ScalarNode) else ""
        # The last part is the container's own, those before it are the host's.
        match = _PORTS.fullmatch(text.rpartition(":")[2])
        protocol = self._protocol(item, match)
        if match is None or protocol not in _PROTOCOLS:
            self._report(item, "what is no port of TCP, UDP or SCTP")
            return set()

        first = int(match["first"])
        last = int(match["last"] or first)
        if not 0 < first <= last <= MAX_PORT:
            self._report(item, "what is no port of TCP, UDP or SCTP")
            return set()

        count = last - first + 1
        if count > _MAX_RANGE:
            what = f"a range of {count} ports, since a Service lists each and takes {_MAX_RANGE}"
            self._report(item, what, help_text="name the ports that are used, or smaller ranges")
            return set()

        return {(number, protocol) for number in range(first, last + 1)}

    def _protocol(self, item: Node, match: re.Match[str] | None) -> str:
        """Return the protocol of a port: that of the mapping's own key, else the suffix's."""
        node = child(item, "protocol")
        if isinstance(node, ScalarNode):
            return (self._text(node) or "tcp").upper()

        suffix = match["protocol"] if match is not None else None
        return (suffix or "tcp").upper()

    def replicas(self) -> int:
        node = child(self.body, "deploy", "replicas")
        if not isinstance(node, ScalarNode) or node.is_null:
            return 1

        text = self._text(node)
        number = whole_number(text, MAX_INT32)
        if number is None:
            self._report_number(node, f"{quote(text)} replicas")
            return 1
        return number

    def _key(self, entry: Entry, result: Object) -> None:
        """Carry one key over into the container, or report it."""
        key, node = entry.key.text, entry.value
        is_null = isinstance(node, ScalarNode) and node.is_null
        if is_null or key in _ELSEWHERE or key.startswith("x-"):
            return

        if key in _COMMANDS:
            # A mapping is no command: ``_words`` returns None for it.
            words = self._words(node)
            result[_COMMANDS[key]] = words and [*map(_escape_variables, words)]
        elif key in _FLAGS:
            result[_FLAGS[key]] = self._words(node) == ["true"]
        elif key in _SECURITY:
            self._security(entry, result)
        elif key == "working_dir" and isinstance(node, ScalarNode):
            result["workingDir"] = self._text(node)
        elif key == "healthcheck" and (probe := self._probe(node)) is not None:
            result["livenessProbe"] = probe
        elif key == "tmpfs":
            self._tmpfs(node)
        elif key == "volumes":
            for item in items_of(node):
                self._volume(item)
        else:
            # Also a healthcheck without a probe, and a working_dir that is no scalar.
            what = _PARTLY_CARRIED.get(key, quote(key))
            self._report(entry.key, f"{what} ({self.spec.name.text})")

    def _tmpfs(self, node: Node) -> None:
        """Mount each ``/path:option,size=64m`` of ``tmpfs``; of the options only size is read."""
        for item in items_of(node) if isinstance(node, ListNode) else [node]:
            if not isinstance(item, ScalarNode) or item.is_null:
                continue

            path, _, options = self._text(item).partition(":")
            size = ""
            for option in options.split(","):
                if option.startswith("size="):
                    size = option.removeprefix("size=")
                    break

            self._mount_memory(item, path, size)

    def _report(self, node: Node, what: str, help_text: str | None = None) -> None:
        message = f"not carried over to Kubernetes: {what}"
        self.diagnostics.append(codes.NOT_CARRIED.at(node.span, message, help_text=help_text))

    def _report_number(self, node: Node, what: str) -> None:
        what = f"{what} ({self.spec.name.text})"
        self._report(node, what, help_text=f"write a whole number from 0 to {MAX_INT32}")

    def _image(self) -> str:
        node = self.body.value("image")
        if isinstance(node, ScalarNode) and not node.is_null:
            return self._text(node)

        name = self.spec.name
        build = self.body.get("build")
        if build is None:
            self.diagnostics.append(codes.NO_IMAGE.at(name.span, f"{name.text} names no image"))
            return ""

        image = f"{self.pod}-{name.text}"  # what Compose calls what it builds
        message = f"build and push the image {quote(image)} yourself"
        self.diagnostics.append(codes.MADE_BY_HAND.at(build.key.span, message))
        return image

    def _text(self, node: ScalarNode) -> str:
        value = interpolate(node.text, self.lookup)
        self.diagnostics.extend(problem_at(node, problem) for problem in value.problems)
        return value.text

    def _words(self, node: Node) -> list[str] | None:
        """Return a command: a list, or a line that is split as a shell would.

        A line with an open quotation mark is one word. Return None for null and for a mapping.
        """
        if isinstance(node, ListNode):
            return [self._text(item) for item in node.items if isinstance(item, ScalarNode)]
        if not isinstance(node, ScalarNode) or node.is_null:
            return None

        line = self._text(node)
        try:
            return shlex.split(line)
        except ValueError:
            return [line]

    def _security(self, entry: Entry, result: Object) -> None:
        context = cast("Object", result.setdefault("securityContext", {}))
        words = self._words(entry.value) or []
        match entry.key.text:
            case "cap_add" | "cap_drop" as key:
                capabilities = cast("Object", context.setdefault("capabilities", {}))
                # Compose takes any spelling of a capability. Kubernetes hands the name on, and not
                # every container runtime knows it in lower case or with "CAP_".
                names = [word.upper().removeprefix("CAP_") for word in words]
                capabilities[key.removeprefix("cap_")] = [*names]
            case "read_only":
                context["readOnlyRootFilesystem"] = words == ["true"]
            case "privileged":
                context["privileged"] = words == ["true"]
            case _:
                self._user(entry, words[0] if words else "", context)

    def _user(self, entry: Entry, user_and_group: str, context: Object) -> None:
        """Set ``UID`` or ``UID:GID``: Kubernetes takes no names, which only the image knows."""
        user, _, group = user_and_group.partition(":")
        for what, name in (("user", user), ("group", group or "0")):
            if whole_number(name, MAX_INT32) is None:
                is_number = name.isascii() and name.isdecimal()
                why = "too large a number" if is_number else "a name and no number"
                self._report(entry.key, f"the {what} {quote(name)}, which is {why}")
                return

        context["runAsUser"] = whole_number(user)
        if group:
            context["runAsGroup"] = whole_number(group)

    def _probe(self, node: Node) -> Object | None:
        """Return a healthcheck as a liveness probe.

        Return None for one that has no test, or the test ``NONE``, which turns off the image's.
        """
        command = self._test_command(child(node, "test"))
        if command is None or not isinstance(node, MapNode):
            return None

        probe: Object = {"exec": {"command": [*map(_escape_variables, command)]}}
        for key, name in _TIMES.items():
            value = node.value(key)
            if isinstance(value, ScalarNode) and not value.is_null:
                text = self._text(value)
                seconds = _whole_seconds(text)
                if seconds is None:
                    what = f"the {key} {quote(text)} of a healthcheck ({self.spec.name.text})"
                    self._report(value, what, help_text="write a duration such as 90s or 1m30s")
                elif seconds:
                    probe[name] = seconds

        retries = node.value("retries")
        if isinstance(retries, ScalarNode) and not retries.is_null:
            text = self._text(retries)
            number = whole_number(text, MAX_INT32)
            if number is None:
                self._report_number(retries, f"{quote(text)} retries of a healthcheck")
            else:
                probe["failureThreshold"] = number
        return probe

    def _test_command(self, test: Node | None) -> list[str] | None:
        """Return the command of a healthcheck's test.

        It is a line for the shell, or a list whose first word, CMD or CMD-SHELL, says what follows.
        """
        if isinstance(test, ScalarNode):
            words = ["CMD-SHELL", self._text(test)]
        elif isinstance(test, ListNode):
            words = self._words(test) or [""]
        else:
            return None

        match words[0]:
            case "CMD":
                return words[1:]
            case "CMD-SHELL":
                return ["/bin/sh", "-c", *words[1:]]
            case _:
                return None

    def _volume(self, item: Node) -> None:
        """Mount a volume of the short or the long form.

        A named volume becomes a claim, a tmpfs memory; a path of the host has no counterpart.
        """
        if isinstance(item, ScalarNode):
            source, _, rest = self._text(item).partition(":")
            target, _, mode = rest.partition(":")
            # Compose takes a source for a path if it begins like one.
            is_named = bool(target) and not source.startswith((".", "/", "~"))
            kind = "volume" if is_named else "bind"
            read_only = "ro" in mode.split(",")
        elif isinstance(item, MapNode):
            members = {
                each.key.text: self._text(each.value)
                for each in item.entries
                if isinstance(each.value, ScalarNode)
            }
            source = members.get("source", "")
            target = members.get("target", "")
            kind = members.get("type", "")
            read_only = members.get("read_only") == "true"
        else:
            return

        if kind == "tmpfs":
            size = child(child(item, "tmpfs"), "size")
            text = self._text(size) if isinstance(size, ScalarNode) else ""
            self._mount_memory(item, target, text)
        elif kind == "volume" and source:
            self.claim(source, target, read_only=read_only)
        else:
            self._report(item, "a path of the host")

    def claim(self, volume: str, target: str, *, read_only: bool) -> None:
        """Claim a named volume of the pod file, and mount it at a path."""
        self.claims.add(volume)
        name = object_name(self.pod, volume, "volume")
        self._mount(target, {"persistentVolumeClaim": {"claimName": name}}, read_only=read_only)

    def _mount_memory(self, item: Node, path: str, size: str) -> None:
        """Mount memory as a folder.

        ``size``: its limit in bytes, or a number with a unit, as Compose writes them; "" or "0"
        for none.
        """
        memory: Object = {"medium": "Memory"}
        parts = _SIZE.fullmatch(size.strip().lower())
        if parts is not None and int(parts["number"]):
            memory["sizeLimit"] = parts["number"] + _SIZE_UNITS[parts["unit"] or "b"]
        elif size and size != "0":
            self._report(item, f"the size {quote(size)} of a tmpfs ({self.spec.name.text})")

        self._mount(path, {"emptyDir": memory})

    def _mount(self, path: str, source: Object, *, read_only: bool = False) -> None:
        name = f"volume-{len(self.volumes)}"
        self.volumes.append(source | {"name": name})
        self.mounts.append({"name": name, "mountPath": path, "readOnly": read_only})


def _whole_seconds(text: str) -> int | None:
    """Return a duration of Compose in seconds, rounded up; None if it is none or too long.

    >>> _whole_seconds("1m30s"), _whole_seconds("500ms"), _whole_seconds("0s")
    (90, 1, 0)
    """
    if not text.strip("0hms."):
        return 0

    try:
        seconds = math.ceil(round(parse_duration(text), 6))
    except ValueError:
        return None
    return seconds if seconds <= MAX_INT32 else None


def _escape_variables(word: str) -> str:
    """Return a word of a command that the kubelet leaves as it is.

    It fills in ``$(NAME)``, which a shell would run, and takes ``$$`` for one dollar
    (kubernetes.io, "Define dependent environment variables").
    """
    return _VARIABLE.sub("$$", word)
