"""Numbers and their blocks in a state: who may use which, once (PROTOCOL.md, "Numbers and blocks")."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import msgspec

from txnlog.common.format_limits import MAX_BLOCK_NUMBERS, MAX_NUMBER
from txnlog.errors import CoordinatorFenced, InvalidInputError, InvalidTransactionState, LimitExceeded
from txnlog.fold.state import Block, Draft, State
from txnlog.format.actions import Close, Header, Renew, Reserve

CHUNK: Final = 256
"""Used numbers are bitmaps of this many bits: sparse blocks cost only the chunks they touch."""

TOUCH_MS: Final = 60_000
"""The time at which a block was touched is kept to this: entries would be longer, the state no better for it."""

_WHY_CLOSED: Final = "the namespace was adopted since, or a vacuum took their writer for dead, and closed their block"


def block_of(draft: Draft | State, number: int) -> Block | None:
    """The open block that holds a number."""
    blocks = draft.head.open_blocks
    index = bisect_right(blocks, number) - 1
    if index < 0:
        return None
    block = draft.blocks.get(blocks[index])
    return block if block is not None and number < block.first + block.count else None


def owner_of(draft: Draft | State, number: int) -> str | None:
    """The writer of the open block that holds a number."""
    block = block_of(draft, number)
    return None if block is None else block.writer


def is_used(draft: Draft | State, number: int) -> bool:
    """Whether a number of an open block was used."""
    return bool((draft.used.get(number // CHUNK) or 0) >> (number % CHUNK) & 1)


def can_be_used(draft: Draft | State, number: int) -> bool:
    """Whether a number of an open block was not used yet."""
    return block_of(draft, number) is not None and not is_used(draft, number)


def is_spent(draft: Draft | State, number: int) -> bool:
    """Whether a number can never be used anew: it was used, or its block is closed."""
    return number < draft.head.next_number and (block_of(draft, number) is None or is_used(draft, number))


def use(draft: Draft, number: int, at: Header) -> None:
    """Take a number, once.

    Raises CoordinatorFenced for one outside the open blocks, InvalidTransactionState for a used one.
    """
    block = block_of(draft, number)
    if block is None:
        if not 0 <= number < draft.head.next_number:
            raise InvalidInputError(f"the number {number} was never given to a writer")
        raise CoordinatorFenced(f"the number {number} cannot be used any more: {_WHY_CLOSED}")
    bits = draft.used.get(number // CHUNK) or 0
    bit = 1 << (number % CHUNK)
    if bits & bit:
        raise InvalidTransactionState(f"the number {number} was used before", advice="begin a new transaction")
    draft.used.put(number // CHUNK, bits | bit)
    if at.timestamp_ms - block.touched_ms >= TOUCH_MS:
        draft.blocks.put(block.first, msgspec.structs.replace(block, touched_ms=at.timestamp_ms))


def reserve(draft: Draft, action: Reserve, at: Header) -> None:
    """Open a block. Blocks begin and end at a chunk, so that no two share a bitmap."""
    head = draft.head
    if action.first != head.next_number or action.first % CHUNK or action.count % CHUNK or action.count <= 0:
        raise InvalidInputError(f"a block of {action.count} numbers cannot begin at {action.first}")
    if action.count > MAX_BLOCK_NUMBERS or action.first + action.count > MAX_NUMBER:
        raise LimitExceeded(
            f"a block of {action.count:,} numbers", advice=f"at most {MAX_BLOCK_NUMBERS:,} in one block"
        )
    draft.blocks.put(action.first, Block(action.first, action.count, action.writer, at.timestamp_ms))
    draft.head = msgspec.structs.replace(
        head, next_number=action.first + action.count, open_blocks=(*head.open_blocks, action.first)
    )


def renew(draft: Draft, action: Renew, at: Header) -> None:
    """The block's writer is alive."""
    block = draft.blocks.get(action.first)
    if block is None:
        raise CoordinatorFenced(f"the numbers from {action.first} on cannot be used any more: {_WHY_CLOSED}")
    draft.blocks.put(action.first, msgspec.structs.replace(block, touched_ms=at.timestamp_ms))


def close(draft: Draft, action: Close, _at: Header) -> None:
    """Close a block: none of its unused numbers can ever be used. Refused while a transaction of it is open."""
    block = draft.blocks.get(action.first)
    if block is None:
        raise InvalidInputError(f"no open block begins at {action.first}")
    end = block.first + block.count
    for number, transaction in draft.transactions.items():
        if block.first <= number < end:
            raise InvalidTransactionState(
                f"the block at {action.first} holds the transaction {draft.txn_id(number)}: it is {transaction.state}"
            )
    _close(draft, [block])


def close_all(draft: Draft) -> None:
    """Close every block, whatever it holds: no number that was ever given is used anew."""
    _close(draft, [block for _, block in draft.blocks.items()])


def _close(draft: Draft, blocks: list[Block]) -> None:
    firsts = {block.first for block in blocks}
    chunks = [range(block.first // CHUNK, (block.first + block.count) // CHUNK) for block in blocks]
    for first in firsts:
        draft.blocks.remove(first)
    head = draft.head
    draft.head = msgspec.structs.replace(
        head, open_blocks=tuple(first for first in head.open_blocks if first not in firsts)
    )
    touched = [chunk for chunk, _ in draft.used.items() if any(chunk in closed for closed in chunks)]
    for chunk in touched:
        draft.used.remove(chunk)


__all__ = [
    "CHUNK",
    "TOUCH_MS",
    "block_of",
    "can_be_used",
    "close",
    "close_all",
    "is_spent",
    "is_used",
    "owner_of",
    "renew",
    "reserve",
    "use",
]
