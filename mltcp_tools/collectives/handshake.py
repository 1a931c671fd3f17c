# SPDX-License-Identifier: BSD-2-Clause
"""Messages between a rank and an aggregator: JSON objects in lines, which anybody may have sent.

The aggregator begins with a challenge. A rank answers with its request and a proof that it has the
token: the HMAC of both. The packets' secret is the HMAC of the aggregator's nonce and the job's
name, which the ranks draw at random. So neither the token nor the secret is ever sent, and nothing
that was recorded is of use in another job. Where the aggregator has no token, the key is empty.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mltcp_tools.base.errors import MltcpError

LINE_BYTES = 4096
"""The longest message."""

LEAVE = b"leave"
"""A rank's word to the aggregator when it is done."""

NONCE_BYTES = 16

_SENTENCE_CHARACTERS = 500


class MessageError(MltcpError):
    """A message that can't be right; the sentence says what is wrong with it."""


def parse(line: bytes) -> dict[str, Any]:
    """The object in a line. MessageError where there is none."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise MessageError("That is not a message of this protocol.")
    return message


def read_number(fields: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """An integer of the fields. MessageError where it isn't one, or isn't within the bounds."""
    value = fields.get(name)
    if type(value) is not int or not low <= value <= high:
        raise MessageError(f"The message's {name} is {value!r:.40}, not in {low} to {high}.")
    return value


def read_nonce(fields: Mapping[str, Any], name: str) -> bytes:
    """NONCE_BYTES of the fields, sent as hexadecimal digits. MessageError without them."""
    try:
        nonce = bytes.fromhex(fields[name])
    except (KeyError, TypeError, ValueError):
        nonce = b""
    if len(nonce) != NONCE_BYTES:
        raise MessageError(f"The message's {name} isn't {2 * NONCE_BYTES} hexadecimal digits.")
    return nonce


def read_sentence(fields: Mapping[str, Any], *names: str) -> str:
    """The first sentence that has one of the names, fit to be printed; empty without one."""
    for name in names:
        if isinstance(fields.get(name), str):
            shown = fields[name][:_SENTENCE_CHARACTERS]
            return "".join(each if each.isprintable() else "?" for each in shown)
    return ""


def prove(token: str, challenge: bytes, request: Mapping[str, Any]) -> str:
    """The proof that goes with a request."""
    return _hmac(token, b"join", challenge, json.dumps(request, sort_keys=True).encode()).hex()


def packet_secret(token: str, nonce: bytes, job: str) -> bytes:
    """The 16 bytes that a job's packets are checked under."""
    return _hmac(token, b"packets", nonce, job.encode())[:16]


def _hmac(token: str, purpose: bytes, nonce: bytes, text: bytes) -> bytes:
    return hmac.digest(os.fsencode(token), purpose + nonce + text, "sha256")


@dataclass(frozen=True)
class Admitted:
    """The grant of an aggregator to a job.

    job, generation, key: what its packets carry. slots: that it has. values: of 32 bits, most in a
    packet. cuts: whether messages must be cut into packets by the sender. nonce: of packet_secret.
    """

    job: int
    generation: int
    key: int
    slots: int
    values: int
    cuts: bool
    nonce: bytes

    @classmethod
    def parse(cls, message: Mapping[str, Any], slots: int, values: int) -> Admitted:
        """From a message; MessageError where it grants what can't be. slots, values: asked for."""
        fields = message.get("admitted")
        if not isinstance(fields, dict):
            raise MessageError("The message grants nothing.")
        granted = read_number(fields, "values", 4, values)
        if granted % 4:
            raise MessageError(f"The message's values are {granted}, not a multiple of 4.")
        return cls(
            job=read_number(fields, "job", 0, 2**16 - 1),
            generation=read_number(fields, "generation", 0, 2**32 - 1),
            key=read_number(fields, "key", 1, 2**64 - 1),
            slots=read_number(fields, "slots", 1, slots),
            values=granted,
            cuts=fields.get("cuts") is True,
            nonce=read_nonce(fields, "nonce"),
        )

    def message(self) -> dict[str, Any]:
        """The message that `parse` reads."""
        return {"admitted": {**vars(self), "nonce": self.nonce.hex()}}
