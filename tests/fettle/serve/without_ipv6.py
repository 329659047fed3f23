"""A process as on a kernel that was booted with `ipv6.disable=1`."""

import ctypes
import platform
import socket
import struct

SOCKET_CALL = {"x86_64": 41, "aarch64": 198}.get(platform.machine())
EAFNOSUPPORT = 97
_NO_NEW_PRIVILEGES, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def forbid_ipv6() -> None:
    """Makes socket() fail for IPv6 in this process and in those it starts; raises OSError where
    seccomp cannot be used.
    """
    assert SOCKET_CALL is not None
    instructions = (
        (_LOAD, 0, 0, 0),  # the call's number
        (_JUMP_IF_EQUAL, 0, 3, SOCKET_CALL),
        (_LOAD, 0, 0, 16),  # its first argument
        (_JUMP_IF_EQUAL, 0, 1, socket.AF_INET6),
        (_RETURN, 0, 0, _FAIL | EAFNOSUPPORT),
        (_RETURN, 0, 0, _ALLOW),
    )
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    program = _Program(len(instructions), packed)
    libc = ctypes.CDLL(None, use_errno=True)
    for call in ((_NO_NEW_PRIVILEGES, 1, 0, 0, 0), (_SET_SECCOMP, _FILTER, ctypes.byref(program))):
        if libc.prctl(*call) != 0:
            raise OSError(ctypes.get_errno(), "seccomp cannot be used")
