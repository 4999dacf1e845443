"""python -m second_reader read ROOT NAMESPACE TOPIC VERSION LEVEL"""

import json
import re
import sys
from pathlib import Path

from .entries import DAMAGED, FORMS, NO_NAMESPACE, NO_TOPIC, NO_VERSION, Answer, entry_path
from .segments import read
from .state import read_log


def register(root):
    """Namespaces that the root log lists; none if it cannot be read (P-232)."""
    try:
        return list(read_log(root / "_catalog").namespaces.values())
    except Answer:
        return []


def open_namespace(root, namespace):
    """State of the log in a folder, if it is the one that the root lists (6.2)."""
    folder, listed = root / namespace, register(root)
    if not re.fullmatch(FORMS["name"], namespace) and namespace != "_catalog" or not folder.is_dir():
        raise Answer(NO_NAMESPACE, "no such folder")
    if not entry_path(folder, 0).exists():
        lost = any(other.name == namespace for other in listed) and any(path.is_file() for path in folder.rglob("*"))
        raise Answer(DAMAGED if lost else NO_NAMESPACE, "no entry 0 (P-114)")
    state = read_log(folder)
    identity = state.name, state.coordinators[-1][1]
    for other in listed:
        same = (other.name, other.coordinator) == identity and other.log in ("", state.first_digest)
        if same != (other.name == namespace):
            raise Answer(NO_NAMESPACE, "the root lists another log, or this one elsewhere (P-232)")
    return state


def answer(root, namespace, name, version, level):
    """The rows of a topic at a version (section 8)."""
    state = open_namespace(root, namespace)
    version = state.version if version == "latest" else int(version)
    if not state.oldest <= version <= state.version:
        raise Answer(NO_VERSION, f"readable are {state.oldest} to {state.version} (P-103)")
    topics = [topic for topic in state.all_topics.values() if topic.name == name and topic.id <= version]
    if not topics or topics[-1].dropped is not None and topics[-1].dropped <= version:
        raise Answer(NO_TOPIC, "no such topic (P-34)")
    topic, rows = topics[-1], []
    schema = [schema for since, schema in topic.schemas if since <= version][-1]
    for segment, seen in state.plan(topic, version, level == "read_uncommitted"):
        path = root / namespace / topic.folder / f"_txnlog_segment={segment.segment}" / segment.file
        try:
            rows += read(path, state, topic, schema, segment, seen)
        except Answer:
            if read_log(root / namespace).oldest > version:
                raise Answer(NO_VERSION, "a vacuum came first (P-150)") from None
            raise
    rows.sort(key=lambda row: (row["_offset"] is None, row["_partition"], row["_offset"]))
    if level == "read_committed":
        for row in rows:
            del row["_txn_state"]
    return rows


def main(command, root, *others):
    """Print the rows, or why there are none; gives the exit code."""
    try:
        for row in answer(Path(root), *others):
            print(json.dumps(row))
    except Answer as error:
        code, why = error.args
        print(why, file=sys.stderr)
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
