"""A process of the race tests: opens a store by itself, waits for the start, then creates the same keys as its rivals.

Prints one line per key that it was told it created. Arguments, as JSON on standard input: url, options, racer, rounds.
"""

from __future__ import annotations

import json
import sys

from txnlog.store import Created, open_store


def main() -> None:
    """Take part in one race."""
    task = json.loads(sys.stdin.readline())
    store = open_store(task["url"], task["options"])
    # Connections are opened before the start: a rival that is still connecting is none.
    store.create(f"warm/{task['racer']}", b"")
    body = f"{task['racer']}-".encode() * 200
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(task["rounds"]):
        if store.create(f"_log/{number:06d}", body) is Created.CREATED:
            print(number, flush=True)


if __name__ == "__main__":
    main()
