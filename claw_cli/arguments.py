"""The arguments that verbs share.

Every verb about a pod takes ``-f``. A verb about the whole pod also takes the file as its argument.
"""

from pathlib import Path
from typing import Annotated

import typer

REST = "claw.rest"
"""The key of ``context.meta`` that holds the arguments for another program, a tuple of texts."""

_DEFAULT = Path("claw-pod.yml")

Pod = Annotated[
    Path | None, typer.Argument(metavar="POD", help=f"The pod file; default: {_DEFAULT}.")
]
_FILE = f"The pod file, by option; default: {_DEFAULT}."
File = Annotated[Path | None, typer.Option("-f", "--file", metavar="POD", help=_FILE)]
_OUTPUT = "The compiled tree; default: .claw-runtime beside the pod."
Output = Annotated[Path | None, typer.Option("-o", "--output", metavar="DIR", help=_OUTPUT)]
AgentId = Annotated[
    str, typer.Argument(metavar="AGENT", help="The agent's id; with count: name-0, name-1 …")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def pod_file(argument: Path | None, option: Path | None) -> Path:
    """Return the pod file: that of the argument or the option, else the default.

    Raise ``BadParameter`` if it is given twice.
    """
    if argument is not None and option is not None:
        raise typer.BadParameter("the pod file is named twice: as the argument, and by --file")

    return argument or option or _DEFAULT
