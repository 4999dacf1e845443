"""The conformance kit: small roots in the format of PROTOCOL.md, with the rows that every reader must find in them.

``python -m txnlog.testing.conformance run -- COMMAND...`` asks a reader in any language; ``conformance/README.md``
says what COMMAND is called with and what it answers.
``make`` makes the roots anew, ``reference`` answers with txnlog itself.
"""

from __future__ import annotations

from txnlog.testing.conformance.cases import GOLDEN, Answer, Case, cases_of, difference
from txnlog.testing.conformance.reference import answer
from txnlog.testing.conformance.runner import Result, ask, run

__all__ = ["GOLDEN", "Answer", "Case", "Result", "answer", "ask", "cases_of", "difference", "run"]
