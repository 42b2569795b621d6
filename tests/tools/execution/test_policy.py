"""``allow`` and ``deny``."""

from __future__ import annotations

import pytest

from claw_tools.errors import ErrorCode, ToolError
from claw_tools.execution.policy import CommandPolicy

NAMES = (
    "echo",
    "cat",
    "ls",
    "pwd",
    "head",
    "tail",
    "wc",
    "grep",
    "sort",
    "uniq",
    "diff",
    "date",
    "true",
    "false",
    "test",
)
ALLOW = CommandPolicy(allow=NAMES)
DENY = CommandPolicy(deny=["curl"])


def refusal_of(policy: CommandPolicy, command: str) -> ErrorCode:
    """Return the code with which a command is refused; fail if it is not."""
    with pytest.raises(ToolError) as refused:
        policy.check_shell(command)
    return refused.value.code


@pytest.mark.requirement("tools:exec:allow")
@pytest.mark.parametrize(
    "command",
    [
        *(
            "echo $(curl http://evil)",
            "echo `id`",
            'echo "`id`"',
            "ls & curl http://evil",
            "ls\ncurl http://evil",
            "ls\rx",
        ),
        *(
            "echo x > /etc/passwd",
            "find / -exec sh -c id \\;",
            "env sh -c id",
            "xargs -a x sh",
            "awk 'BEGIN{system(\"id\")}'",
        ),
        *(
            "./ls",
            "/data/ws/ls",
            "rm -r -f /",
            "rm -rf  /",
            "source ./x.sh",
            "export PATH=.:$PATH; ls",
            "PATH=. ls",
            "FOO=1 ls",
        ),
        *(
            "git -c alias.x='!sh' x",
            "node -e 1",
            "cat <(curl evil)",
            "command curl evil",
            "sed -n '1e id' f",
            "tee /etc/cron.d/x",
        ),
        *(
            "chmod -R 777 /",
            "",
            "ls\u00a0x",
            "ls;",
            "ls || ",
            "(ls)",
            "{ ls; }",
            "echo ${x}",
            "echo $'x'",
            "echo 'x",
            'echo "x',
        ),
        *(";".join(["ls"] * 33), "l\\s\\\n", "$x", "ls |& id"),
    ],
)
def test_what_cant_be_judged_is_refused(command: str) -> None:
    assert refusal_of(ALLOW, command) == ErrorCode.PERMISSION_DENIED


@pytest.mark.requirement("tools:exec:allow")
@pytest.mark.parametrize(
    "command",
    [
        *(
            "echo 'a;b|c&d'",
            'grep "shutdown" f',
            "echo reboot notes",
            "/usr/bin/ls -l",
            '"ls" -l',
            "ls && cat x | wc -l",
        ),
        *("echo $HOME", "echo a\\;b \\$\\(id\\)", "echo '$(id)'", ";".join(["ls"] * 32)),
    ],
)
def test_quoting_is_understood(command: str) -> None:
    ALLOW.check_shell(command)


@pytest.mark.requirement("tools:exec:allow")
def test_spawn_runs_only_what_the_fixed_path_has() -> None:
    ALLOW.check_program(["ls", "; id", "$(id)"])
    for command in ("./ls", "/data/ws/ls", "sh", "sh -c id"):
        with pytest.raises(ToolError):
            ALLOW.check_program([command])


@pytest.mark.requirement("tools:exec:deny")
@pytest.mark.parametrize(
    "command",
    [
        *(
            "curl x",
            "/usr/bin/curl x",
            "A=1 curl x",
            "ls; curl x",
            "ls\ncurl",
            "ls & curl",
            "a | curl",
            "(curl x)",
            "{ curl; }",
        ),
        *(
            "x=$(curl y)",
            "echo `curl y`",
            'echo "$(curl y)"',
            "env curl x",
            "nice -n 5 curl x",
            "timeout 5 curl",
            "xargs curl",
        ),
        *(
            "sh -c 'curl x'",
            "env sh -c 'ls; curl x'",
            "if curl; then ls; fi",
            "! curl",
            "'cu'rl",
            "command curl",
        ),
    ],
)
def test_a_denied_name_is_found_where_a_command_begins(command: str) -> None:
    assert refusal_of(DENY, command) == ErrorCode.PERMISSION_DENIED


@pytest.mark.requirement("tools:exec:deny")
@pytest.mark.parametrize(
    "command", ["echo curl", "grep -r curl .", "ls > curl.txt", "echo 'a; curl'"]
)
def test_a_denied_name_elsewhere_is_a_word(command: str) -> None:
    DENY.check_shell(command)
    CommandPolicy().check_shell("curl $(id)")
