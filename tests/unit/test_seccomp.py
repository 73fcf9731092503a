"""The filter of system calls, read back as the kernel would."""

from __future__ import annotations

import os
import struct

import pytest

from tangram_workers.sandbox.seccomp import make_filter

ALLOW, EPERM, ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026


def verdict(program: bytes, *, architecture: int, number: int) -> int:
    """Run a filter on one system call, as the kernel does."""
    instructions = list(struct.iter_unpack("=HBBI", program))
    position = accumulator = 0
    while True:
        code, if_true, if_false, value = instructions[position]
        position += 1
        if code == 0x20:
            accumulator = {0: number, 4: architecture}[value]
        elif code == 0x06:
            return int(value)
        else:
            is_true = accumulator == value if code == 0x15 else accumulator >= value
            position += if_true if is_true else if_false


@pytest.fixture(params=[("x86_64", 0xC000003E, 165, 0), ("aarch64", 0xC00000B7, 40, 63)])
def case(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[bytes, int, int, int]:
    machine, architecture, mount, read = request.param
    uname = os.uname_result(("Linux", "host", "6", "1", machine))
    monkeypatch.setattr(os, "uname", lambda: uname)
    program = make_filter()
    assert program is not None
    return program, architecture, mount, read


def test_dangerous_calls_are_refused(case: tuple[bytes, int, int, int]) -> None:
    program, architecture, mount, _ = case
    assert verdict(program, architecture=architecture, number=mount) == EPERM


def test_ordinary_calls_are_allowed(case: tuple[bytes, int, int, int]) -> None:
    program, architecture, _, read = case
    assert verdict(program, architecture=architecture, number=read) == ALLOW


def test_io_uring_seems_unknown_to_the_kernel(case: tuple[bytes, int, int, int]) -> None:
    program, architecture, _, _ = case
    assert verdict(program, architecture=architecture, number=425) == ENOSYS


def test_other_doors_to_the_same_calls_are_shut(case: tuple[bytes, int, int, int]) -> None:
    program, architecture, mount, read = case
    assert verdict(program, architecture=0x40000003, number=read) == ENOSYS
    assert verdict(program, architecture=architecture, number=0x40000000 + mount) == ENOSYS


def test_unknown_processor_gets_no_filter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", "6", "1", "riscv64")))
    assert make_filter() is None
