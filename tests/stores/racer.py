"""A process of the race tests: opens a store by itself and creates keys as it is told, together with its rivals.

Standard input: a line of JSON (url, options, racer), then lines "FIRST END". Standard output: "ready", then for each of
those lines the numbers of the keys that it was told it created, and "done".
"""

from __future__ import annotations

import json
import sys

from txnlog.store import Created, open_store


def main() -> None:
    """Take part in races until the input ends."""
    task = json.loads(sys.stdin.readline())
    store = open_store(task["url"], task["options"])
    # Connections are opened before the start: a rival that is still connecting is none.
    store.create(f"warm/{task['racer']}", b"")
    body = f"{task['racer']}-".encode() * 200
    print("ready", flush=True)
    for line in sys.stdin:
        first, end = map(int, line.split())
        for number in range(first, end):
            if store.create(f"_log/{number:06d}", body) is Created.CREATED:
                print(number, flush=True)
        print("done", flush=True)


if __name__ == "__main__":
    main()
