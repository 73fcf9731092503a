"""The system calls that no program in a sandbox has a use for and that open much of the kernel.

A user namespace alone leaves them within reach: a key ring is even handed down from the worker.
The list refuses; all else is allowed, since a list of what is allowed would break programs that
nobody thought of.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Iterable, Mapping

#: Numbers on x86_64 and on aarch64.
_REFUSED: Mapping[str, tuple[int, int]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "bpf": (321, 280),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pivot_root": (155, 41),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "setns": (308, 268),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
#: These look as if the kernel were too old for them: programs then use something older.
_UNKNOWN: Mapping[str, tuple[int, int]] = {
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
#: On x86_64, numbers from here on are those of x32, a second door to the same calls.
_X32 = 0x40000000

_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NUMBER_OFFSET, _ARCHITECTURE_OFFSET = 0, 4


def make_filter() -> bytes | None:
    """Return the filter as bwrap takes it; None for a processor whose numbers are not known."""
    known = _ARCHITECTURES.get(os.uname().machine)
    if known is None:
        return None
    architecture, column = known
    no_such_call = _ERRNO | errno.ENOSYS
    program = [
        _instruction(_LOAD, _ARCHITECTURE_OFFSET),
        # Another processor's calls (32-bit programs) have other numbers, so none gets through.
        _instruction(_JUMP_EQUAL, architecture, if_true=1),
        _instruction(_RETURN, no_such_call),
        _instruction(_LOAD, _NUMBER_OFFSET),
        _instruction(_JUMP_AT_LEAST, _X32, if_false=1),
        _instruction(_RETURN, no_such_call),
        *_returns((numbers[column] for numbers in _UNKNOWN.values()), no_such_call),
        *_returns((numbers[column] for numbers in _REFUSED.values()), _ERRNO | errno.EPERM),
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _returns(numbers: Iterable[int], verdict: int) -> Iterable[bytes]:
    for number in sorted(numbers):
        yield _instruction(_JUMP_EQUAL, number, if_false=1)
        yield _instruction(_RETURN, verdict)


def _instruction(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
