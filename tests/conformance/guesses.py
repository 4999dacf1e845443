"""Misreadings of what PROTOCOL.md once left to guess; as in the module ``misreadings``."""

from __future__ import annotations

from tests.conformance.misreading import Misreading

GUESSES = (
    Misreading(
        "a carriage return is damage",
        "unusual",
        'value = json.loads(line.decode("utf-8"), parse',
        'value = json.loads(line.decode("utf-8") * (b"\\r" not in line), parse',
    ),
    Misreading(
        "an unknown action counts before a bad line in front of it",
        "entries",
        "[decode_action(line) for line in lines[1:]]",
        "[decode_action(line) for line in lines[:0:-1]][::-1]",
    ),
    Misreading(
        "a line is applied before the next one is decoded",
        "entries",
        'raise Unsupported(value["action"])',
        'return {"action": "replace", "txn": None}',
    ),
    Misreading(
        "an unknown action counts before the header's version",
        "entries",
        '    if header["action"] != "header" or header["version"] != version:\n',
        "    [decode_action(line) for line in lines[1:]]\n"
        '    if header["action"] != "header" or header["version"] != version:\n',
    ),
    Misreading("an action may have no name", "entries", 'is not str or not value["action"]:', "is not str:"),
    Misreading("bounds are texts and integers", "unusual", "not in {str, int, float, bool} or", "not in {str, int} or"),
    Misreading("a bound may be infinite", "entries", " or value in {INFINITY, -INFINITY}", ""),
    Misreading("levels are counted without the text", "entries", "refuse_if(level > 32", "refuse_if(level > 33"),
    Misreading("the columns are a level of their own", "unusual", "refuse_if(level > 32", "refuse_if(level > 31"),
    Misreading("names of columns have bytes", "unusual", "<= len(name) <= 255", "<= len(name.encode()) <= 255"),
    Misreading("all white space is blank", "unusual", "or FORBIDDEN & {*name}", "or len(name.split()) != 1"),
    Misreading("a column may have a blank", "entries", '*" ,;{}()="', '*",;{}()="'),
    Misreading(
        "names of columns are compared in lower case",
        "entries",
        'field["name"].casefold() for field in fields',
        'field["name"].lower() for field in fields',
    ),
    Misreading(
        "a commit may name its producer and application again",
        "entries",
        'refuse_if(named, "its',
        'refuse_if(False, "its',
    ),
    Misreading(
        "a topic that is there may be named as dropped",
        "entries",
        'topic is None or topic["dropped"] is None for topic in gone',
        "topic is None for topic in gone",
    ),
    Misreading(
        "a topic that never was may be named as dropped",
        "entries",
        'topic is None or topic["dropped"] is None for topic in gone',
        'topic is not None and topic["dropped"] is None for topic in gone',
    ),
    Misreading(
        "a subscription of the future may be named as dropped",
        "entries",
        "number > self.version or number in self.subscriptions",
        "number in self.subscriptions",
    ),
    Misreading(
        "only a known subscription may be named as dropped",
        "unusual",
        "number > self.version or number in self.subscriptions",
        "True",
    ),
    Misreading("a subscription begins in front of the end", "unusual", "any(offset > end for", "any(offset >= end for"),
    Misreading("a subscription may begin anywhere", "entries", "any(offset > end for", "any(offset < 0 for"),
    Misreading(
        "one entry may open several consumers",
        "entries",
        'refuse_if(a["subscription"] in self.opened',
        "refuse_if(False",
    ),
    Misreading(
        "one entry may open one consumer of a shared subscription",
        "unusual",
        '        if subscription["type"] == "shared":\n            return\n'
        '        refuse_if(a["subscription"] in self.opened, "two consumers")\n'
        '        self.opened.add(a["subscription"])\n',
        '        refuse_if(a["subscription"] in self.opened, "two consumers")\n'
        '        self.opened.add(a["subscription"])\n'
        '        if subscription["type"] == "shared":\n            return\n',
    ),
    Misreading(
        "deleted offsets may come back",
        "entries",
        'missing or new - old, "other offsets"',
        'missing or {i for i in new - old if i[1] >= self.starts.get((a["topic"], i[0]), 0)}, "other offsets"',
    ),
    Misreading("deleted rows must stay", "unusual", 'if offset >= self.starts.get((a["topic"], p), 0)}', "}"),
    Misreading("entry 0 is not compared", "beginnings", "if second is not None and decode", "if False and decode"),
    Misreading(
        "a folder without entry 0 is no namespace",
        "adopted",
        "refuse_if(namespace in listed and any",
        "refuse_if(False and any",
    ),
    Misreading("a page needs no checksum", "segments", "if start:\n            check", "if False:\n            check"),
    Misreading(
        "every page needs a checksum", "segments", "if start:\n            check", "if True:\n            check"
    ),
    Misreading(
        "fields of a struct that the schema lacks are damage",
        "segments",
        "inner = {field.name: field.type for field in stored}",
        'inner = {field.name: field.type for field in stored}\n            refuse_if(len(inner) > len(kind["fields"]))',
    ),
    Misreading(
        "deleted rows are not looked at",
        "segments",
        'not field["nullable"] and found.null_count',
        'not field["nullable"] and found.slice(1).null_count',
    ),
)
"""Each is what somebody could have guessed."""
