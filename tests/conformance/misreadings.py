"""Misreadings of PROTOCOL.md: a line of the second reader each, and the golden root that notices."""

from __future__ import annotations

from tests.conformance.guesses import GUESSES
from tests.conformance.guesses_of_cursors import GUESSES_OF_CURSORS
from tests.conformance.misreading import Misreading

MISREADINGS = (
    # --- offsets and shares ---
    Misreading(
        "a share begins one row late",
        "produces",
        "self.claims[number, partition] = (topic, offset + rows, left - rows)",
        "self.claims[number, partition] = (topic, offset + rows, left - rows - 1)",
    ),
    Misreading(
        "shares need not claim everything",
        "entries",
        "any(left for _, _, left in self",
        "any(left < 0 for _, _, left in self",
    ),
    Misreading("a share may claim no rows", "entries", "not 0 < rows <= left", "not 0 <= rows <= left"),
    Misreading(
        "a share may claim more than is left",
        "entries",
        '<= left, "a share of other rows")\n            self.claims[number, partition] = '
        "(topic, offset + rows, left - rows)",
        ")\n            self.claims[number, partition] = (topic, offset + rows, max(0, left - rows))",
    ),
    Misreading(
        "shares may overtake pending rows",
        "entries",
        "refuse_if((topic, partition) in pending",
        "refuse_if(() in pending",
    ),
    Misreading(
        "a slice begins behind the end",
        "produces",
        "offset = self.ends.get((topic, partition), 0)\n",
        "offset = self.ends.get((topic, partition), 0) + 1\n",
    ),
    Misreading(
        "offsets are counted over all partitions",
        "produces",
        "offset = self.ends.get((topic, partition), 0)\n        self.ends[topic, partition] = offset + rows",
        "offset = self.ends.get((topic, 0), 0)\n        self.ends[topic, 0] = offset + rows",
    ),
    Misreading(
        "pending rows get their offsets when they are logged",
        "transactions",
        'transaction["segments"].append(a["segment"])',
        'transaction["segments"].append(a["segment"])\n'
        '            [self.advance(topic["id"], s[0], s[1]) for s in slices]',
    ),
    Misreading(
        "a transaction's segments are shown newest first",
        "transactions",
        'own = transaction["segments"]',
        'own = transaction["segments"][::-1]',
    ),
    Misreading(
        "shares come before the pending rows of their commit",
        "transactions",
        "        for number in own:\n            segment",
        "        for number in [n for n in own if not a['shares']]:\n            segment",
    ),
    # --- visibility ---
    Misreading(
        "a segment is visible one version early",
        "transactions",
        'segment["ended"] > version',
        'segment["ended"] > version + 1',
    ),
    Misreading(
        "a segment is visible one version late", "produces", 'segment["ended"] > version', 'segment["ended"] >= version'
    ),
    Misreading(
        "a segment is pending one version late",
        "transactions",
        'segment["logged"] > version',
        'segment["logged"] >= version',
    ),
    Misreading("aborted rows stay open", "transactions", 'return "ABORTED"', 'return "OPEN"'),
    Misreading(
        "an abort is skipped", "transactions", '        self.end_aborted(a["txn"])', '        self.forget(a["txn"])'
    ),
    Misreading(
        "aborted segments count as visible",
        "transactions",
        'if segment["state"] == "aborted":\n        return "ABORTED"',
        'if False:\n        return "ABORTED"',
    ),
    Misreading(
        "prepared rows have a state of their own",
        "transactions",
        '        return "OPEN"',
        '        return log.transactions.get(segment["txn"], {}).get("state", "OPEN")',
    ),
    Misreading(
        "a replaced segment goes one version late",
        "merged",
        "removed > version else None",
        "removed >= version else None",
    ),
    Misreading("replaced segments are shown", "merged", "removed is None or removed > version", "True"),
    Misreading(
        "replaced segments are gone at every version",
        "merged",
        "removed is None or removed > version",
        "removed is None",
    ),
    Misreading(
        "replaced segments are uncommitted rows",
        "merged",
        "removed > version else None",
        'removed > version else "ABORTED"',
    ),
    Misreading("a stale start", "retention", 'at >= log.starts.get((topic["id"], partition), 0)', "True"),
    Misreading(
        "the first offset is deleted as well",
        "retention",
        'at >= log.starts.get((topic["id"], partition), 0)',
        'at > log.starts.get((topic["id"], partition), -1)',
    ),
    Misreading(
        "pending rows of a partition with deleted records are gone",
        "retention",
        "at is None or at >= log",
        "at is not None and at >= log",
    ),
    Misreading(
        "aborted rows below the oldest readable version are read",
        "retention",
        'segment["ended"] <= log.oldest',
        "False",
    ),
    Misreading(
        "aborted rows at the oldest readable version are read",
        "retention",
        'segment["ended"] <= log.oldest',
        'segment["ended"] < log.oldest',
    ),
    Misreading(
        "the oldest readable version cannot be read",
        "retention",
        "not log.oldest <= version <=",
        "not log.oldest < version <=",
    ),
    Misreading(
        "versions below the oldest readable one are read",
        "retention",
        "not log.oldest <= version <=",
        "not 0 <= version <=",
    ),
    Misreading(
        "a version of the future is the newest",
        "produces",
        'version = log.version if version == "latest" else int(version)',
        'version = log.version if version == "latest" else min(log.version, int(version))',
    ),
    # --- columns ---
    Misreading(
        "an aborted row has a version",
        "transactions",
        '"_version": segment["ended"] if visible else None',
        '"_version": segment["ended"]',
    ),
    Misreading(
        "the version is the one that logged the rows",
        "transactions",
        '"_version": segment["ended"] if visible',
        '"_version": segment["logged"] if visible',
    ),
    Misreading(
        "a TxnID is written little-endian",
        "produces",
        "{coordinator:04x}{number:028x}",
        "{number:028x}{coordinator:04x}",
    ),
    Misreading(
        "a shared row's transaction is its segment",
        "produces",
        'if "_txn" in columns else segment["txn"]',
        'if segment["compacted"] else segment["number"]',
    ),
    Misreading(
        "a merged row has its merge's transaction",
        "merged",
        'if "_txn" in columns else segment["txn"]',
        'if segment["txn"] is None else segment["txn"]',
    ),
    Misreading(
        "a merged row has its merge's version",
        "merged",
        'if segment["compacted"] and visible:\n            row |=',
        "if False:\n            row |=",
    ),
    Misreading(
        "a pending merged row has the version that its file stores",
        "merged",
        'if segment["compacted"] and visible:\n            row |=',
        'if segment["compacted"]:\n            row |=',
    ),
    Misreading(
        "a pending merged row has the transaction that its file stores",
        "merged",
        ' if state == "COMMITTED" else []',
        "",
    ),
    Misreading("an adoption gives all rows the new coordinator id", "adopted", "if first <= number][-1]", "][-1]"),
    Misreading("TxnIDs keep the first coordinator id", "adopted", "if first <= number][-1]", "if first <= number][0]"),
    # --- topics and schemas ---
    Misreading(
        "a dropped topic is gone at every version",
        "topics",
        'topic["dropped"] is None or topic["dropped"] > version',
        'topic["dropped"] is None',
    ),
    Misreading(
        "a topic is there at the version that drops it",
        "topics",
        'topic["dropped"] > version',
        'topic["dropped"] >= version',
    ),
    Misreading("a topic made again has the old folder", "topics", 'if same else a["name"]', 'if False else a["name"]'),
    Misreading(
        "names of topics are compared without case",
        "produces",
        'if topic["name"] == name and',
        'if topic["name"].lower() == name.lower() and',
    ),
    Misreading("the newest schema holds at every version", "schemas", "if since <= version][-1]", "][-1]"),
    Misreading(
        "a schema holds from the version behind it",
        "schemas",
        "if since <= version][-1]",
        "if since < version or since == found['id']][-1]",
    ),
    Misreading(
        "a column that a file lacks is damage",
        "schemas",
        'refuse_if(not field["nullable"], "a column is missing")',
        "refuse_if(True)",
    ),
    Misreading("types do not widen", "schemas", '"byte": {"short", "integer", "long", "double"}', '"byte": {"short"}'),
    Misreading(
        "fields of a struct must all be there",
        "schemas",
        'f["name"] not in inner or widens',
        'f["name"] in inner and widens',
    ),
    # --- who ends transactions ---
    Misreading(
        "a producer's restart aborts nothing",
        "fences",
        't["producer"] == a["name"] and t["state"] == "OPEN"',
        't["producer"] == a["name"] and t["state"] == "-"',
    ),
    Misreading(
        "a producer's restart aborts what is prepared",
        "fences",
        't["producer"] == a["name"] and t["state"] == "OPEN"',
        't["producer"] == a["name"]',
    ),
    Misreading(
        "a consumer that opens aborts nothing", "fences", 'if a["subscription"] in held]', 'if a["subscription"] < 0]'
    ),
    Misreading(
        "a consumer that opens aborts what is prepared",
        "fences",
        'if self.transactions[number]["state"] == "OPEN":',
        "if True:",
    ),
    Misreading(
        "an empty acknowledgement claims its subscription",
        "fences",
        'if wanted["ranges"] or wanted["cumulative"]:',
        "if True:",
    ),
    Misreading("a prepared transaction may be fenced", "fences", "stale = not prepared and self", "stale = self"),
    # --- checkpoints ---
    Misreading("a checkpoint has no earliest offsets", "checkpoints", 'rows.get("starts", {})', "{}"),
    Misreading(
        "a checkpoint has no pending segments",
        "checkpoints",
        '[*rows.get("segments", {}).values(), *tables',
        "[*tables",
    ),
    Misreading(
        "segments of the first run only",
        "checkpoints",
        'tables.setdefault(part["kind"], []).extend(',
        'tables[part["kind"]] = (',
    ),
    Misreading(
        "a checkpoint has no removals", "checkpoints", 'for item in tables.get("removals", [])}', "for item in ()}"
    ),
    Misreading(
        "a checkpoint has no dropped topics",
        "checkpoints",
        '"dropped": topic.get("dropped_version")',
        '"dropped": None',
    ),
    Misreading(
        "a checkpoint's segments are all of the newest version",
        "checkpoints",
        '"ended": item.get("ended_version")',
        '"ended": None',
    ),
    Misreading("a checkpoint knows one coordinator id", "adopted", ', *map(tuple, head.get("adoptions", []))]', "]"),
    Misreading(
        "an unusable checkpoint is damage",
        "lost",
        "        except Unusable:\n            at = named",
        "        except Unusable:\n            raise Damaged from None",
    ),
    Misreading(
        "parts are not verified",
        "lost",
        'len(data) != part["size_bytes"] or digest_of(data) != part["digest"]',
        "False",
    ),
    Misreading(
        "a checkpoint of another log is taken",
        "lost",
        'manifest["digest"] != digest_of(get(home, version) or b"")',
        "False",
    ),
    # --- files and entries ---
    Misreading("the checksum is not looked at", "segments", 'f"{zlib.crc32(data[start:]):08x}" != digits', "False"),
    Misreading(
        "a footer's checksum is that of the file", "segments", 'if kind == "footer-crc32":', 'if kind == "footer":'
    ),
    Misreading(
        "pages are not verified", "segments", "page_checksum_verification=True", "page_checksum_verification=False"
    ),
    Misreading(
        "the file's partitions are not compared",
        "segments",
        'columns.get("_partition", partitions) != partitions',
        "False",
    ),
    Misreading("null is allowed everywhere", "segments", 'not field["nullable"] and found.null_count', "False"),
    Misreading("rows are not counted", "segments", 'table.num_rows != segment["rows"]', "False"),
    Misreading(
        "read_committed reads every file",
        "segments",
        'if state is None or (state != "COMMITTED" and level == "read_committed"):',
        "if state is None:",
    ),
    Misreading(
        "unknown actions are skipped", "entries", 'raise Unsupported(value["action"])', 'return {"action": "verdict"}'
    ),
    Misreading("unknown fields are ignored", "entries", "if value.keys() - fields.keys():", "if False:"),
    Misreading("1.0 is an integer", "entries", "type(value) is not int or not low", "value != int(value) or not low"),
    Misreading("the chain is not checked", "entries", 'header["previous"] != self.digest', "False"),
    Misreading("time may go back", "entries", 'header["timestamp_ms"] < self.time', "False"),
    Misreading(
        "a last line without an end is fine",
        "entries",
        'or not data.endswith(b"\\n"):\n        raise Damaged("too long, or its last line has no end")\n'
        "    lines = data[:-1]",
        ':\n        raise Damaged("too long")\n    lines = data.rstrip(b"\\n")',
    ),
    Misreading(
        "a file may have any name", "entries", 'not re.fullmatch(r"[0-9a-f]{32}\\.parquet", a["file"])', "False"
    ),
    Misreading(
        "a replaced segment must not be complete", "entries", "refuse_if(missing or new - old", "refuse_if(new - old"
    ),
    Misreading(
        "a reader needs the writers' features",
        "unusual",
        'if a["reader_version"] > 1 or {*a["reader_features"]} - {"holes"}:',
        'if a["reader_version"] > 1 or a["writer_features"] or {*a["reader_features"]} - {"holes"}:',
    ),
    Misreading(
        "a reader needs the writers' version",
        "unusual",
        'if a["reader_version"] > 1 or',
        'if a["writer_version"] > 1 or',
    ),
    Misreading(
        "a number may come twice",
        "entries",
        'refuse_if(number in self.used, "a number used before")',
        "refuse_if(False)",
    ),
    Misreading(
        "a prepared transaction times out",
        "entries",
        'and a["reason"] not in {"user", "admin"}',
        'and a["reason"] == "fenced"',
    ),
    Misreading("a merged segment may have other offsets", "entries", "missing or new - old", "False"),
    Misreading("a copy is its original", "adopted", 'if item["name"] != namespace and same', "if False and same"),
    Misreading(
        "rows move up behind a hole",
        "holes",
        "(place, partition, at) for place, at in enumerate(offsets)",
        "(place, partition, at) for place, at in enumerate(range(first, first + len(offsets)))",
    ),
    Misreading(
        "a hole has no offset",
        "holes",
        'return rows if segment["extent"] is None else segment["extent"]',
        "return rows",
    ),
    Misreading(
        "offsets that a file says may come twice",
        "holes",
        "offsets != sorted({*offsets})",
        "offsets != sorted(offsets)",
    ),
    Misreading(
        "offsets that a file says have any order",
        "holes",
        "offsets != sorted({*offsets})",
        "len(offsets) > len({*offsets})",
    ),
    Misreading("a file may say any offset", "holes", "any(not first <= at < end for at in offsets)", "False"),
    Misreading("a file may say an offset below its first", "holes", "not first <= at < end", "at >= end"),
    Misreading("a file may say the offset behind its last", "holes", "not first <= at < end", "not first <= at <= end"),
    Misreading(
        "deleted rows between holes are read",
        "holes",
        "in enumerate(offsets) if at >= start]",
        "in enumerate(offsets)]",
    ),
    Misreading(
        "offsets of a file with holes are counted",
        "holes",
        'segment["extent"] is not None and state == "COMMITTED"',
        "False",
    ),
    Misreading("features need not be known", "entries", '{*a["reader_features"]} - {"holes"}', "False"),
    *GUESSES,
    *GUESSES_OF_CURSORS,
)
"""Each must be noticed; together they are what the kit is worth."""
