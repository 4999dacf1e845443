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
    # --- what a line is compared with when it is decoded ---
    Misreading(
        "a first line of an unknown action is unsupported",
        "entries",
        '        raise Damaged("no header") from None',
        "        raise",
    ),
    Misreading(
        "a text may have half of a surrogate pair",
        "entries",
        '        raise Damaged("half of a character") from None',
        "        pass",
    ),
    Misreading(
        "a key may have half of a surrogate pair",
        "entries",
        "        text(name)\n        text(item)",
        "        text(item)",
    ),
    Misreading(
        "ranges out of order cannot be decoded",
        "entries",
        "ranges = list_of(pair)",
        "ranges = list_of(lambda item: pair(item) or refuse_if(item[0] >= item[1]))",
    ),
    Misreading(
        "a slice without rows cannot be decoded",
        "entries",
        "array(integer, integer, or_null(integer), least=2)",
        "array(integer, lambda value: integer(value, 1), or_null(integer), least=2)",
    ),
    Misreading(
        "a version that goes back is looked at first",
        "entries",
        '        if a["reader_version"] > 1 or',
        '        refuse_if(a["writer_version"] < 1)\n        if a["reader_version"] > 1 or',
    ),
    Misreading(
        "a writer has 32 hexadecimal digits",
        "unusual",
        '"header": {"version": N, "writer": T',
        '"header": {"version": N, "writer": (lambda value: refuse_if(not DIGITS.fullmatch(value)), REQUIRED)',
    ),
    # --- what is refused ---
    Misreading(
        "a digest of what is prepared is any text",
        "entries",
        '        digest_is_allowed(a["digest"])\n        refuse_if(any(',
        "        refuse_if(any(",
    ),
    Misreading("there may be no ranges", "entries", '    refuse_if(not ranges, "no ranges")\n', ""),
    Misreading("ranges may touch", "entries", "not last < start < stop", "not last <= start < stop"),
    Misreading("the consumer of a lease is any text", "entries", '        label_is_allowed(a["consumer"])\n', ""),
    Misreading(
        "a lease may be anywhere",
        "entries",
        '            ranges_are_allowed(ranges, self.end_of(a["subscription"], partition))',
        "            pass",
    ),
    Misreading(
        "a lease begins above the position",
        "unusual",
        '            ranges_are_allowed(ranges, self.end_of(a["subscription"], partition))',
        '            refuse_if(ranges[0][0] < self.cursor(a["subscription"], partition).position)',
    ),
    Misreading(
        "an expected cursor may pass over a message",
        "entries",
        'any(a < below.get(partition, 0) for a, _ in cursor.acknowledged), "ack',
        'False, "ack',
    ),
    Misreading(
        "an expected cursor keeps others from passing over a message",
        "unusual",
        "any(a < below.get(partition, 0) for a, _ in cursor.acknowledged)",
        "any(a < end for other, end in below.items() for a, _ in self.cursor(number, other).acknowledged)",
    ),
    Misreading("an end may have 64 bits", "entries", "offset + rows > MOST,", "offset + rows > MOST + 1,"),
    Misreading("an end has less than 63 bits", "unusual", "offset + rows > MOST,", "offset + rows >= MOST,"),
    Misreading(
        "a replace may remove a segment twice",
        "entries",
        "or number in self.removals,",
        "or self.removals.get(number, self.version) < self.version,",
    ),
    Misreading(
        "what was claimed of a dropped subscription is forgotten",
        "entries",
        'refuse_if(transaction["claimed"] or',
        'refuse_if(self.holds.get(a["txn"]) or',
    ),
    Misreading(
        "a coordinator id that is registered may have any length",
        "entries",
        ' or a["coordinator"] >= 2**16, "no coordinator id")',
        ', "no coordinator id")',
    ),
    Misreading(
        "a fenced epoch is nobody's",
        "unusual",
        '        self.producers[a["name"]] = self.version',
        '        self.producers[a["name"]] = self.version if a["fenced_by"] is None else None',
    ),
    Misreading(
        "a dead-letter topic is any text",
        "entries",
        '            name_is_allowed(a["dead_letter_topic"])',
        "            pass",
    ),
    Misreading(
        "a dead-letter topic is there",
        "unusual",
        '            name_is_allowed(a["dead_letter_topic"])',
        '            refuse_if(a["dead_letter_topic"] not in [other["name"] for other in self.topics.values()])',
    ),
    Misreading(
        "a column of dead letters has any type",
        "entries",
        'own and DEAD_LETTERS.get(field["name"]) != field["type"]',
        'own and field["name"] not in DEAD_LETTERS',
    ),
    Misreading(
        "only a dead-letter topic has columns of dead letters",
        "unusual",
        'refuse_if(own and DEAD_LETTERS.get(field["name"]) != field["type"]',
        "refuse_if(own",
    ),
    Misreading(
        "a root log that cannot be read stops readers",
        "root_log",
        "    except (Damaged, Unsupported):\n        return ()",
        "    except Damaged:\n        return ()",
    ),
    # --- columns of files ---
    Misreading(
        "no name may be there twice",
        "segments",
        "column_names.count(name) > 1 for name in wanted",
        "column_names.count(name) > 1 for name in table.column_names",
    ),
    Misreading(
        "a partition that nobody asks for is looked at",
        "segments",
        '    columns = {}\n    for field in schema["fields"]:',
        '    columns = {}\n    for name in {"_partition"} & {*table.column_names}:\n'
        "        refuse_if(table.column(name).null_count)\n"
        '    for field in schema["fields"]:',
    ),
    Misreading("a pending merged file has its columns", "segments", ' if state == "COMMITTED" else []', ""),
    Misreading(
        "Arrow's schema says the types",
        "segments",
        "io.BytesIO(without_arrow_schema(data))",
        "io.BytesIO(data)",
    ),
    Misreading(
        "of a field that a struct has twice any will do",
        "segments",
        'any(names.count(f["name"]) > 1 for f in kind["fields"])',
        "False",
    ),
    Misreading(
        "a field that the schema lacks is there once",
        "segments",
        'any(names.count(f["name"]) > 1 for f in kind["fields"])',
        "len({*names}) < len(names)",
    ),
    Misreading(
        "an unsigned integer widens",
        "segments",
        "    return any(stored == ARROW[name] and",
        "    return pa.types.is_unsigned_integer(stored) or any(stored == ARROW[name] and",
    ),
    Misreading(
        "a time without a zone is one of UTC",
        "segments",
        "    return any(stored == ARROW[name] and",
        "    return stored == pa.timestamp('us') or any(stored == ARROW[name] and",
    ),
    Misreading(
        "a time may have another unit",
        "segments",
        "    return any(stored == ARROW[name] and",
        "    return stored == pa.timestamp('ms', 'UTC') or any(stored == ARROW[name] and",
    ),
    Misreading("a number of a file may be negative", "segments", 'min(columns["_txn"], default=0) < 0', "False"),
    Misreading(
        "a number of a file may be narrow",
        "segments",
        "table.schema.field(name).type != STORED[name]",
        "not pa.types.is_integer(table.schema.field(name).type) and name == '_txn'",
    ),
    Misreading(
        "partitions of deleted rows are not compared",
        "segments",
        'columns.get("_partition", partitions) != partitions',
        'columns.get("_partition", partitions)[1:] != partitions[1:]',
    ),
)
"""Each is what somebody could have guessed."""
