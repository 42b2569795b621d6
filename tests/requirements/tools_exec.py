"""``exec_shell`` and ``spawn``: what a command can't do, how it ends, and what it answers."""

from __future__ import annotations

from tests.requirements.requirement import Requirement

SPEC = 'docs/spec/tools-host.md, "Commands"'

REQUIREMENTS: dict[str, Requirement] = {
    "tools:exec:form": Requirement(
        SPEC, "A form of containment holds when each attempt to leave it has failed at the start."
    ),
    "tools:exec:files": Requirement(
        SPEC,
        "No file outside the workspace is read, written, linked, renamed, cut, or changed in mode, owner, time or attribute.",
    ),
    "tools:exec:watches": Requirement(
        SPEC, "No folder or file outside the workspace is watched, by inotify, fanotify or dnotify."
    ),
    "tools:exec:proc": Requirement(
        SPEC,
        "No environment or memory of the host, and no setting of the kernel, is reached by /proc.",
    ),
    "tools:exec:sockets": Requirement(
        SPEC, "No TCP, UDP, raw, netlink, unix or abstract socket leads out."
    ),
    "tools:exec:signals": Requirement(
        SPEC, "No process outside is signalled, traced, limited or given another priority."
    ),
    "tools:exec:calls": Requirement(
        SPEC,
        "Namespaces, mounts, ptrace, bpf, keyctl, io_uring, memfd, TIOCSTI and more are refused.",
    ),
    "tools:exec:architecture": Requirement(
        SPEC, "A system call of another architecture ends the process."
    ),
    "tools:exec:setuid": Requirement(
        SPEC,
        "Commands of a host that is root run as the workspace's owner, and nothing gains rights.",
    ),
    "tools:exec:descriptors": Requirement(SPEC, "No descriptor of the host is inherited."),
    "tools:exec:environment": Requirement(
        SPEC,
        "The environment is PATH, HOME, LANG, TMPDIR, TERM and what is configured; stdin is empty.",
    ),
    "tools:exec:old-landlock": Requirement(
        SPEC,
        "Where Landlock knows no scopes and no truncation, signals and truncation are refused by seccomp.",
    ),
    "tools:exec:no-landlock": Requirement(
        SPEC, "Without Landlock no command runs, and one line says why."
    ),
    "tools:exec:root-workspace": Requirement(
        SPEC, "A workspace of root has no commands where the host is root's."
    ),
    "tools:exec:network": Requirement(
        SPEC, "`network: true` opens AF_INET and AF_INET6, and never AF_UNIX."
    ),
    "tools:exec:result": Requirement(
        SPEC, "A result has exit code, signal, both streams, their sizes and the time."
    ),
    "tools:exec:output": Requirement(
        SPEC,
        "The beginning and the end of each stream are kept, 32 KiB of each at most, so that no result is cut; after 16 MiB the"
        " command is ended.",
    ),
    "tools:exec:survivors": Requirement(
        SPEC, "Nothing outlives a command that ends, in twelve ways of trying."
    ),
    "tools:exec:timeout": Requirement(
        SPEC, "Nothing outlives a command whose time is over; the error is `timeout`."
    ),
    "tools:exec:timeout-values": Requirement(
        SPEC, "`timeout` is a number above 0 and at most 300; so is its default."
    ),
    "tools:exec:cancellation": Requirement(
        SPEC, "Nothing outlives a call that is cancelled, and no descriptor."
    ),
    "tools:exec:kill-9": Requirement(
        SPEC, "Nothing outlives a kill -9 of the host or of the launcher, which is started again."
    ),
    "tools:exec:bombs": Requirement(
        SPEC,
        "256 processes, 1 GiB for a process and for all of a call together: the host stays responsive.",
    ),
    "tools:exec:files-size": Requirement(
        SPEC, "A file has 1 GiB at most, /tmp 256 MiB, and nothing dumps core."
    ),
    "tools:exec:busy": Requirement(SPEC, "A sixth `spawn` is `busy`, at once."),
    "tools:exec:spawn": Requirement(
        SPEC, "Arguments of `spawn` are literal; a NUL is `invalid_args`."
    ),
    "tools:exec:allow": Requirement(
        SPEC,
        "With `allow`, only its programs of the fixed PATH run, and what can't be judged is refused.",
    ),
    "tools:exec:allow-own": Requirement(
        SPEC, "With `allow`, the kernel runs no program of the workspace."
    ),
    "tools:exec:deny": Requirement(
        SPEC, "With `deny`, a name is refused wherever a command may begin."
    ),
}
