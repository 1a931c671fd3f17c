# SPDX-License-Identifier: BSD-2-Clause
"""Random and mutated messages for the kernel module's interface, each of which it must answer.

Part of them are right, or nearly so, to get past its checks.
"""

from __future__ import annotations

import errno
import random
import socket
import struct
from collections import Counter
from collections.abc import Sequence

from mltcp_tools.kernel.backends import genl
from mltcp_tools.kernel.native.uapi import (
    GENL_VERSION,
    ONE,
    RULE_PORTS,
    Attribute,
    Command,
    Params,
    constant,
)

IDS = 50
"""Ids of jobs that most messages choose from; now and then it is any."""

BATCH = 16
"""Messages per system call, at most."""

_HEADER = struct.Struct("=IHHIIBBH")  # of netlink, then of generic netlink
_REQUEST, _ACK, _DUMP, _NESTED = 0x1, 0x4, 0x300, 0x8000
_ERROR, _DONE, _FIRST_TYPE = 2, 3, 16
_NETLINK_GENERIC = 16

_LARGEST = constant("GAIN_MAX")
_NAMES = ("SLOPE", "INTERCEPT", "YIELD_MIN", "YIELD_MAX")
_DEFAULTS = (*(constant(f"DEFAULT_{name}") for name in _NAMES), 0)  # no mechanism
_EDGES = (0, 1, 2, 5, ONE - 1, ONE, ONE + 1, _LARGEST, _LARGEST + 1, 2**31 - 1, 2**31, 2**32 - 1)
_WANTED = {
    Command.JOB_SET: (Attribute.JOB_ID, Attribute.JOB_NAME, Attribute.JOB_PARAMS),
    Command.JOB_DEL: (Attribute.JOB_ID,),
    Command.TAG: (Attribute.FD, Attribute.JOB_ID),
    Command.UNTAG: (Attribute.FD,),
    Command.RULE_SET: (Attribute.FD, Attribute.JOB_ID),
    Command.RULE_DEL: (Attribute.CGROUP,),
}
_CHANGES = {Command.JOB_SET, Command.JOB_DEL, Command.TAG, Command.UNTAG}


class Fuzzer:
    """Sends such messages over a socket of its own. fds: descriptors of all kinds, the last one of
    the folder of a cgroup with the id `cgroup`. answers: how many messages got which error."""

    def __init__(self, family: int, seed: int, fds: Sequence[int], cgroup: int) -> None:
        self.answers: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._fds, self._cgroup = fds, cgroup
        self._family = family
        self._sequence = 0
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_GENERIC)
        self._socket.settimeout(60)

    def send_batch(self, may_change: bool) -> int:
        """Send some messages and read until each has its answer; how many they were."""
        sent, first = b"", self._sequence + 1
        unanswered = {}
        for _ in range(1 + self._below(BATCH)):
            self._sequence += 1
            message = self._message()
            _, kind, flags, number, _, command, *_ = _HEADER.unpack(message[:20].ljust(20))
            changes = kind == self._family and len(message) >= 20 and command in _CHANGES
            unanswered[number] = changes and flags & _REQUEST
            sent += message + bytes(-len(message) % 4)
        self._socket.send(sent)
        count = len(unanswered)
        while unanswered:
            for kind, _, number, payload in genl.messages(self._socket.recv(1 << 16)):
                if kind not in (_ERROR, _DONE):
                    continue
                changes = unanswered.pop(number)  # KeyError: an answer to nothing
                (error,) = struct.unpack_from("=i", payload)
                assert may_change or error or not changes, "it changed something"
                self.answers[errno.errorcode.get(-error, str(error))] += 1
        assert self._sequence == first + count - 1
        return count

    def send_garbage(self) -> None:
        """Send what isn't even a message: no answer is due, but the next question has one."""
        data = bytearray(self._random.randbytes(1 + self._below(256)))
        if len(data) >= 6:  # else it could be for another family
            data[4:6] = struct.pack("=H", 0 if self._one_in(3) else self._family)
        self._socket.send(data)
        self._sequence += 1
        kinds = (self._family, _REQUEST | _ACK, self._sequence)
        self._socket.send(_HEADER.pack(20, *kinds, 0, Command.STATUS_GET, GENL_VERSION, 0))
        while True:
            for kind, _, number, payload in genl.messages(self._socket.recv(1 << 16)):
                if number == self._sequence and kind == _ERROR:
                    assert payload[:4] == bytes(4)
                    return

    def _below(self, limit: int) -> int:
        return self._random.randrange(limit)

    def _one_in(self, limit: int) -> bool:
        return not self._random.randrange(limit)

    def _number(self, bits: int) -> int:
        return self._random.getrandbits(bits)

    def _u32(self) -> int:
        return self._number(32) if self._one_in(3) else self._random.choice(_EDGES)

    def _message(self) -> bytes:
        command = 1 + self._below(len(Command))
        if self._one_in(20):
            command = self._number(8)
        kind, flags = self._family, _REQUEST | _ACK
        if self._one_in(50):
            flags |= _DUMP
        if self._one_in(30):
            flags |= self._number(16) & ~_DUMP
        if self._one_in(100):
            kind = self._below(_FIRST_TYPE)  # control: does nothing
        version = self._number(8) if self._one_in(50) else GENL_VERSION
        reserved = self._number(16) if self._one_in(50) else 0
        attributes = self._wanted(command) if self._one_in(2) else self._anything()
        length = _HEADER.size + len(attributes)
        head = _HEADER.pack(length, kind, flags, self._sequence, 0, command, version, reserved)
        message = bytearray(head + attributes)
        return bytes(self._mutated(message)) if self._one_in(4) else bytes(message)

    def _mutated(self, message: bytearray) -> bytearray:
        """Bytes and lengths of attributes, or the message's own, are others than were right."""
        size = len(message) - _HEADER.size
        while True:
            if size and self._one_in(2):
                message[_HEADER.size + self._below(size)] ^= 1 << self._below(8)
            elif size > 8 and self._one_in(2):
                at = _HEADER.size + (self._below(size - 4) & ~3)
                message[at : at + 2] = struct.pack("=H", self._below(100))
            else:
                message = message[: 16 + self._below(size + 5)]
                message[:4] = struct.pack("=I", len(message))
                return message
            if not self._one_in(2):
                return message

    def _wanted(self, command: int) -> bytes:
        """The attributes that the command wants, in this order."""
        encoded = b"".join(self._attribute(kind) for kind in _WANTED.get(command, ()))
        if command == Command.RULE_SET and self._one_in(2):  # leaves some, or all, alone
            lowest = self._number(16) if self._one_in(3) else 0
            encoded += genl.encode({Attribute.LOWEST_PORT: struct.pack("=H", lowest)})
            encoded += genl.encode({Attribute.NOT_PORTS: self._random.randbytes(2 * RULE_PORTS)})
        return encoded

    def _anything(self) -> bytes:
        encoded = b""
        for _ in range(self._below(7)):
            kind = self._number(16) if self._one_in(20) else 1 + self._below(max(Attribute) + 1)
            encoded += self._attribute(kind, wrong=self._one_in(5))
        return encoded

    def _attribute(self, kind: int, wrong: bool = False) -> bytes:
        any_id = self._u32() if self._one_in(20) else 1 + self._below(IDS)
        value = self._random.randbytes(self._below(61))
        if wrong:
            pass
        elif kind == Attribute.JOB_ID:
            value = struct.pack("=I", any_id)
        elif kind == Attribute.JOB_NAME:
            value = self._name()
        elif kind == Attribute.JOB_PARAMS:
            kind, value = kind | _NESTED, self._params()
        elif kind == Attribute.FD:
            one = self._fds[self._below(len(self._fds)) if self._one_in(2) else -1]
            value = struct.pack("=I", self._u32() if self._one_in(10) else one)
        elif kind == Attribute.CGROUP:
            value = struct.pack("=Q", self._number(64) if self._one_in(5) else self._cgroup)
        return genl.encode({kind: value})

    def _name(self) -> bytes:
        length = self._below(100 if self._one_in(4) else 20)
        name = bytearray(b"a" * length)
        if length and self._one_in(4):
            name[self._below(length)] = self._number(8)
        if length and not self._one_in(10):
            name[-1] = 0
        return bytes(name)

    def _params(self) -> bytes:
        """Most of them whole; else some of the attributes, also twice or unheard of."""
        if self._one_in(10):
            return b"".join(
                genl.encode({self._below(max(Params) + 3): self._random.randbytes(self._below(9))})
                for _ in range(self._below(14))
            )
        wide = [self._number(64) >> self._below(64) for _ in range(2)]
        words = list(_DEFAULTS)
        while self._one_in(2):
            words[self._below(len(words))] = self._u32()
        values = [struct.pack("=Q", each) for each in wide]
        values += [struct.pack("=I", each) for each in words]
        return genl.encode(dict(zip(Params, values, strict=True)))
