"""The filter of system calls, run here as the kernel runs it: a program of classic BPF."""

from __future__ import annotations

import errno
import struct

import pytest

from claw_tools.execution.seccomp import AF_INET, AF_INET6, AF_UNIX, write_filter
from claw_tools.execution.syscalls import MACHINES, numbers

ALLOWED = 0x7FFF0000
KILLED = 0x80000000
REFUSED = 0x00050000 | errno.EPERM
ABSENT = 0x00050000 | errno.ENOSYS
STREAM = 1
DATAGRAM = 2
NEW_USER = 0x10000000
NEWEST_ABI = 99

pytestmark = pytest.mark.parametrize("machine", MACHINES)


def answer(program: bytes, number: int, arguments: tuple[int, ...], architecture: int) -> int:
    """Return what the program answers to one system call (linux/bpf_common.h)."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *padded)
    register = 0
    at = 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("HBBI", program, 8 * at)
        at += 1
        match code:
            case 0x20:
                (register,) = struct.unpack_from("=I", data, value)
            case 0x54:
                register &= value
            case 0x06:
                return int(value)
            case 0x15:
                at += if_true if register == value else if_false
            case 0x35:
                at += if_true if register >= value else if_false
            case 0x45:
                at += if_true if register & value else if_false
            case _:
                raise AssertionError(f"no instruction of the filter: {code:#x}")


def judge(
    machine: str,
    name: str,
    *arguments: int,
    network: bool = False,
    alone: bool = False,
    abi: int = NEWEST_ABI,
) -> int:
    program = write_filter(network=network, alone=alone, abi=abi, machine=machine)
    return answer(program, numbers(machine)[name], arguments, MACHINES[machine][1])


@pytest.mark.requirement("tools:exec:calls")
def test_calls_that_loosen_the_kernel_are_refused_on_every_machine(machine: str) -> None:
    for name in ("mount", "ptrace", "unshare", "bpf", "open_by_handle_at", "keyctl"):
        assert judge(machine, name) == REFUSED, name
    for name in ("clone3", "io_uring_setup", "memfd_create"):
        assert judge(machine, name) == ABSENT, name
    assert judge(machine, "clone", NEW_USER) == REFUSED
    assert judge(machine, "clone", 0) == ALLOWED


@pytest.mark.requirement("tools:exec:calls")
def test_an_argument_with_high_bits_set_is_judged_by_its_low_half(machine: str) -> None:
    terminal_input = 0x5412
    assert judge(machine, "ioctl", 0, terminal_input) == REFUSED
    assert judge(machine, "ioctl", 0, terminal_input | 1 << 40) == REFUSED
    assert judge(machine, "ioctl", 0, terminal_input + 1) == ALLOWED
    assert judge(machine, "setpriority", 0, 0) == ALLOWED
    assert judge(machine, "setpriority", 0, 7) == REFUSED


@pytest.mark.requirement("tools:exec:sockets", "tools:exec:network")
def test_a_socket_is_of_the_internet_if_there_is_a_network_and_never_a_unix_one(
    machine: str,
) -> None:
    for family in (AF_INET, AF_INET6):
        assert judge(machine, "socket", family) == REFUSED
        assert judge(machine, "socket", family, network=True) == ALLOWED
    assert judge(machine, "socket", AF_UNIX, network=True) == REFUSED
    assert judge(machine, "socketpair", AF_UNIX, STREAM) == ALLOWED
    assert judge(machine, "socketpair", AF_UNIX, DATAGRAM) == REFUSED


@pytest.mark.requirement("tools:exec:old-landlock")
def test_what_an_old_landlock_leaves_open_is_refused_without_namespaces(machine: str) -> None:
    for name, first_abi in (("truncate", 3), ("kill", 6)):
        assert judge(machine, name, alone=True, abi=first_abi - 1) == REFUSED, name
        assert judge(machine, name, alone=True, abi=first_abi) == ALLOWED, name
        assert judge(machine, name, abi=first_abi - 1) == ALLOWED, name
    assert judge(machine, "fchmod", alone=True) == REFUSED
    assert judge(machine, "fchmod") == ALLOWED


@pytest.mark.requirement("tools:exec:architecture")
def test_a_call_of_any_other_architecture_kills(machine: str) -> None:
    program = write_filter(network=True, alone=False, abi=NEWEST_ABI, machine=machine)
    own = MACHINES[machine][1]
    others = {audit for _, audit in MACHINES.values()} - {own}
    for architecture in (*others, 0, 0x40000003):
        assert answer(program, 1, (), architecture) == KILLED
    assert answer(program, 1, (), own) == ALLOWED
    if machine == "x86_64":
        x32 = 0x40000000
        assert answer(program, x32 | 1, (), own) == REFUSED
