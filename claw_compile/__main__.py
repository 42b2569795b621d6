"""``python -m claw_compile [POD] [-o DIR] [--target T] [--topology T]``: the compile verb alone."""

import argparse
import sys
from pathlib import Path

from claw_compile.compiler import run
from claw_compile.diagnostics.report import plain_streams


def main() -> int:
    """Compile, and return the exit code: 0, or 1 with errors; argparse exits 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m claw_compile", description="Compile a pod.")
    parser.add_argument(
        "pod", nargs="?", type=Path, default=Path("claw-pod.yml"), help="the pod file"
    )
    parser.add_argument(
        "-o", "--output", type=Path, help="where to write (default: .claw-runtime beside the pod)"
    )
    parser.add_argument(
        "--target", choices=("compose", "kubernetes"), default="compose", help="what is to run it"
    )
    parser.add_argument(
        "--topology",
        choices=("sidecar", "gateway"),
        default="sidecar",
        help="where its proxies run",
    )

    options = parser.parse_args()
    if options.topology == "gateway" and options.target != "kubernetes":
        parser.error("--topology gateway is for --target kubernetes")

    plain_streams()
    return run(options.pod, options.output, options.target, options.topology)


if __name__ == "__main__":
    sys.exit(main())
