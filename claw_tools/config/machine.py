"""The machine of a host: the variables, files and folders that toolhost.yml names
(docs/spec/tools-host.md "toolhost.yml").

Rules. Relative paths start at the folder of toolhost.yml. A message names what is wrong and the
remedy, and never a credential.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from claw_contract.secret import Secret
from claw_tools.errors import ToolError
from claw_tools.web.urls import parse_url, read_host


@dataclass
class LocalMachine:
    """The machine of this process, as a ``claw_contract.toolhost_file.HostMachine``.

    ``taken_namespaces`` are those of installed providers.
    """

    environ: Mapping[str, str]
    directory: Path
    taken_namespaces: frozenset[str] = frozenset()
    tokens: list[Secret] = field(default_factory=list)

    def read_variable(self, name: str) -> str:
        value = self.environ.get(name, "")
        if not value:
            raise ValueError(
                f"the variable {name[:64]} is not set: set it in the environment of the host"
            )
        return value

    def read_file(self, path: str) -> str:
        file = self.directory / path
        try:
            content = file.read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "it is no text"
            raise ValueError(f"the file {file} can't be read: {reason}") from None
        if not content:
            raise ValueError(f"the file {file} is empty: write the credential into it")
        return content

    def find_folder(self, path: str) -> Path:
        folder = self.directory / path
        if "\0" in path or not folder.is_dir():
            raise ValueError(f"there is no folder {str(folder)!r}: make it, or name another one")
        return folder

    def take_token(self, token: Secret) -> None:
        if token in self.tokens:
            raise ValueError("another principal has the same token: give each its own")
        self.tokens.append(token)

    def check_url(self, url: str) -> None:
        try:
            parse_url(url)
        except ToolError as error:
            reason = error.message.partition(": ")[2].removesuffix(".")
            raise ValueError(
                f"this URL can't be used, since {reason}: write http://HOST/PATH or "
                "https://HOST/PATH"
            ) from None

    def normalize_host(self, host: str) -> str:
        return read_host(host)

    def check_namespace(self, name: str) -> None:
        if name in self.taken_namespaces:
            raise ValueError(
                f"the name {name!r} is taken by an installed provider: give it another name"
            )
