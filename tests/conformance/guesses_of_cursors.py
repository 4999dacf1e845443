"""Misreadings of what PROTOCOL.md says of acknowledgements, and of lists that name partitions."""

from __future__ import annotations

from tests.conformance.misreading import Misreading

GUESSES_OF_CURSORS = (
    Misreading(
        "a partition that is not there has a cursor",
        "entries",
        "            cursor = self.cursor(number, partition)\n",
        "            cursor = self.cursors.get((number, partition), Cursor(0))\n",
    ),
    Misreading(
        "a cumulative end may be anywhere", "entries", ' or end > self.end_of(number, partition), "cumulative")', ")"
    ),
    Misreading(
        "of a partition that is named twice the last ranges count",
        "entries",
        'for partition, ranges in wanted["ranges"]:',
        'for partition, ranges in dict(wanted["ranges"]).items():',
    ),
    Misreading(
        "a list names a partition once",
        "unusual",
        'for partition, ranges in wanted["ranges"]:',
        'refuse_if(len(dict(wanted["ranges"])) < len(wanted["ranges"]))\n'
        '        for partition, ranges in wanted["ranges"]:',
    ),
    Misreading(
        "a list gives one cumulative end for a partition",
        "unusual",
        '        below = dict(wanted["cumulative"])',
        '        below = dict(wanted["cumulative"])\n        refuse_if(len(below) < len(wanted["cumulative"]))',
    ),
    Misreading(
        "the first cumulative end counts", "entries", 'dict(wanted["cumulative"])', 'dict(wanted["cumulative"][::-1])'
    ),
    Misreading(
        "the greatest of several earliest offsets counts", "entries", 'in a["before"]:', 'in sorted(a["before"]):'
    ),
    Misreading("the first of several earliest offsets counts", "unusual", 'in a["before"]:', 'in a["before"][:1]:'),
    Misreading(
        "a seek goes to the first of several places",
        "unusual",
        'in a["positions"]:',
        'in dict(a["positions"][::-1]).items():',
    ),
    Misreading(
        "an expected cursor passes over nothing that is claimed",
        "unusual",
        'for a, _ in cursor.acknowledged), "ack',
        'for a, _ in cursor.acknowledged + [item for _, item in cursor.holds]), "ack',
    ),
    Misreading(
        "an acknowledgement's own ranges are claimed before its cursors are compared",
        "unusual",
        "any(a < below.get(partition, 0) for a, _ in cursor.acknowledged)",
        "any(a < below.get(partition, 0) for a, _ in cursor.acknowledged + [tuple(item) for p, found in "
        'wanted["ranges"] if p == partition for item in found])',
    ),
    Misreading(
        "an acknowledgement's own ranges may be the rest below an expected cursor's end",
        "entries",
        "any(a < below.get(partition, 0) for a, _ in cursor.acknowledged)",
        'not wanted["ranges"] and any(a < below.get(partition, 0) for a, _ in cursor.acknowledged)',
    ),
    Misreading(
        "an expected cursor has nothing above it",
        "unusual",
        "any(a < below.get(partition, 0)",
        "any(a < below.get(partition, MOST)",
    ),
    Misreading(
        "two transactions may claim a message",
        "entries",
        'refuse_if(any(a < end and start < b for _, (a, b) in self.holds), "claimed")',
        "pass",
    ),
    Misreading(
        "a message below a claimed end is free",
        "entries",
        'refuse_if(self.cumulative is not None and start < self.cumulative[1], "claimed cumulatively")',
        "pass",
    ),
    Misreading(
        "a cumulative end may pass over what another transaction claims",
        "entries",
        'refuse_if(any(other != txn and a < end for other, (a, _) in self.holds), "claimed one by one")',
        "pass",
    ),
    Misreading(
        "two transactions may claim to cumulative ends",
        "entries",
        "(self.cumulative[0] != txn or end <= self.cumulative[1])",
        "end <= self.cumulative[1]",
    ),
    Misreading(
        "cumulative ends of one transaction may go back",
        "entries",
        "(self.cumulative[0] != txn or end <= self.cumulative[1])",
        "self.cumulative[0] != txn",
    ),
    Misreading(
        "a shared subscription may be acknowledged cumulatively",
        "entries",
        'subscription["type"] == "shared" or end >',
        "end >",
    ),
    Misreading(
        "what is claimed may be sought",
        "entries",
        '            refuse_if(cursor.holds or cursor.cumulative is not None, "pending acknowledgements")\n',
        "",
    ),
    Misreading(
        "a stream's identity is any text",
        "entries",
        '            label_is_allowed(a["stream"]["identity"])',
        "            pass",
    ),
    Misreading(
        "a stream's identity is a label to the decoder",
        "entries",
        'dict.fromkeys(("identity", "query", "offsets_digest"), (text, REQUIRED))',
        'dict.fromkeys(("query", "offsets_digest"), (text, REQUIRED)) | {"identity": (label_is_allowed, REQUIRED)}',
    ),
    Misreading(
        "a share has a row to the decoder",
        "entries",
        "list_of(array(integer, integer, integer, or_null(integer), least=3))",
        "list_of(array(integer, integer, lambda value: integer(value, 1), or_null(integer), least=3))",
    ),
    Misreading(
        "an application is any text",
        "entries",
        '        if a["app_id"] is not None:\n            label_is_allowed(a["app_id"])\n',
        "",
    ),
)
"""Each is what somebody could have guessed."""
