"""``python -m txnlog``: the command line."""

from __future__ import annotations

from txnlog.cli import main

if __name__ == "__main__":
    main()
