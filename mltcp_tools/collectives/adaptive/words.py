"""What ranks and their coordinator say to each other, over connections that keep the order."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

from mltcp_tools.collectives.adaptive.mesh import receive

NOBODY = 0xFFFFFFFF
_HEAD = struct.Struct(
    "=IIIIQQQQ"
)  # word, epoch, giver, ranks, number, size, mask; bytes that follow


class Word(IntEnum):
    """First those of a rank, then those of the coordinator."""

    READY = 1  # it has its values of collective `number`, `size` bytes
    BYE = 2  # it is done, and only relays until all are
    QUIET = 3  # its transfers have stopped; number: collectives that it has finished
    FAILED = 4  # a transfer of this epoch failed; payload: why
    CONNECTED = 5  # it is connected along this epoch's trees
    TELL = 6  # payload: what it says to all members
    HERE = 7  # it is alive
    BACK = 8  # it was out and is there again; number: collectives that it has finished

    GO = 16  # collective `number` of `size` bytes; mask: whose values count; giver: has the sum
    STOP = 17  # stop all transfers; mask: the members of this epoch
    PLAN = 18  # measure the links between the members in the mask, and connect
    TOLD = 19  # payload: what each member said
    ASK = 20  # are you there?
    OUT = 21  # the others go on without you
    SUM = 22  # of collective `number`, in the payload
    REFUSED = 23  # payload: why there is no way back for this rank
    OVER = 24  # payload: why it is over for all
    END = 25  # all are done


@dataclass(frozen=True)
class Message:
    """One word.

    epoch: of the membership it belongs to. size: bytes. mask: bitmap of ranks. ranks: how many were
    members for a collective, of whose values an average is.
    """

    word: Word
    epoch: int = 0
    number: int = 0
    size: int = 0
    mask: int = 0
    giver: int = NOBODY
    ranks: int = 0
    payload: bytes = b""


def send(connection: socket.socket, message: Message) -> None:
    """Say it; OSError where the other end is gone."""
    head = _HEAD.pack(
        message.word,
        message.epoch,
        message.giver,
        message.ranks,
        message.number,
        message.size,
        message.mask,
        len(message.payload),
    )
    connection.sendall(head + message.payload)


def hear(connection: socket.socket) -> Message:
    """The next message; OSError where the other end is gone."""
    head = _HEAD.unpack(receive(connection, _HEAD.size))
    word, epoch, giver, ranks, number, size, mask, length = head
    payload = receive(connection, length) if length else b""
    return Message(Word(word), epoch, number, size, mask, giver, ranks, payload)


def mask_of(ranks: set[int]) -> int:
    """A bit for each rank."""
    return sum(1 << rank for rank in ranks)


def ranks_of(mask: int) -> list[int]:
    """The ranks whose bits are set, in their order."""
    return [rank for rank in range(mask.bit_length()) if mask >> rank & 1]
