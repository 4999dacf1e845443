"""Names that people choose, valid by construction.

A *name* (namespace, topic, subscription) becomes part of an object key or follows one: it is allow-listed, so
that it can neither leave its folder nor mean something to a shell, a URL or Spark. A *label* (producer, application,
consumer) is only ever data.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final, NewType

from txnlog.common.format_limits import MAX_LABEL_CHARACTERS, MAX_NAME_CHARACTERS
from txnlog.common.validation import shown
from txnlog.errors import InvalidInputError, NameNotAllowed

NamespaceName = NewType("NamespaceName", str)
TopicName = NewType("TopicName", str)
SubscriptionName = NewType("SubscriptionName", str)
ProducerName = NewType("ProducerName", str)

NAME_PATTERN: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_-]|\.(?=[A-Za-z0-9_-]))*"
"""What names look like, as a regular expression: a part of that of object keys."""

_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
_DIGITS: Final = re.compile(r"[0-9]+", re.ASCII)
_LABEL: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")

_MISSPELT: Final = 0.8
"""How much of two names agrees where one may be the other misspelt: a letter too few, too many or exchanged."""

# Windows refuses these as file names, with any extension; a root may be copied to one.
_DEVICES: Final = frozenset({"con", "prn", "aux", "nul", *(f"{p}{n}" for p in ("com", "lpt") for n in range(1, 10))})


def _parse(kind: str, text: object) -> str:
    if not isinstance(text, str):
        raise NameNotAllowed(f"a {kind} name is text, not {type(text).__name__}")
    if not text:
        raise NameNotAllowed(f"the {kind} name is empty", advice="give it a name")
    if len(text) > MAX_NAME_CHARACTERS:
        raise NameNotAllowed(
            f"the {kind} name {quoted_name(text)} has {len(text):,} characters",
            advice=f"use at most {MAX_NAME_CHARACTERS}",
        )
    if not _NAME.fullmatch(text):
        advice = "use ASCII letters, digits, '-', '_' and single inner dots, beginning with a letter or digit"
        raise NameNotAllowed(
            f"the {kind} name {quoted_name(text)} is not allowed",
            advice=f"{advice}: no path" if "/" in text else advice,
        )
    if text.split(".", 1)[0].lower() in _DEVICES:
        raise NameNotAllowed(
            f"the {kind} name {quoted_name(text)} is a device name on Windows", advice="choose another name"
        )
    return text


def quoted_name(name: object) -> str:
    """A stranger's name for a message: quoted, control characters escaped, cut short; of anything else its type."""
    text = name if isinstance(name, str) else f"<{type(name).__name__}>"
    return ascii(text if len(text) <= 60 else text[:57] + "...")


def parse_namespace_name(text: object) -> NamespaceName:
    """A valid namespace name, or NameNotAllowed."""
    return NamespaceName(_parse("namespace", text))


def parse_topic_name(text: object) -> TopicName:
    """A valid topic name, or NameNotAllowed."""
    return TopicName(_parse("topic", text))


def parse_topic_names(topics: object) -> tuple[TopicName, ...]:
    """The names of topics, each once, from one name or a list of them. NameNotAllowed, or InvalidInputError."""
    names = [topics] if isinstance(topics, str) else list(topics) if isinstance(topics, Sequence) else None
    if not names:
        raise InvalidInputError(
            f"topics is the name of a topic, or a list of names, not {shown(topics)}", advice='pass topics=["orders"]'
        )
    return tuple(dict.fromkeys(parse_topic_name(name) for name in names))


def parse_subscription_name(text: object) -> SubscriptionName:
    """A valid subscription name, or NameNotAllowed."""
    return SubscriptionName(_parse("subscription", text))


def parse_label(kind: str, text: object) -> str:
    """A producer name, application id or the like: 1 to 256 printable characters, or NameNotAllowed."""
    if not isinstance(text, str):
        raise NameNotAllowed(f"the {kind} is text, not {type(text).__name__}")
    if not 0 < len(text) <= MAX_LABEL_CHARACTERS:
        raise NameNotAllowed(
            f"the {kind} has {len(text):,} characters", advice=f"use 1 to {MAX_LABEL_CHARACTERS} characters"
        )
    if not _LABEL.fullmatch(text):
        raise NameNotAllowed(
            f"the {kind} {quoted_name(text)} holds control characters", advice="use printable characters"
        )
    return text


def parse_producer_name(text: object) -> ProducerName:
    """A valid producer name (Kafka's transactional id), or NameNotAllowed."""
    return ProducerName(parse_label("producer name", text))


def folded(name: str) -> str:
    """The form under which two names clash: stores and file systems may not distinguish case."""
    return name.casefold()


def nearest(wrong: str, known: Iterable[str]) -> str:
    """Advice that offers the nearest known name, for "not found" errors."""
    candidates = sorted(known)
    by_folded = {folded(name): name for name in candidates}
    close = difflib.get_close_matches(folded(wrong[:MAX_LABEL_CHARACTERS]), by_folded, n=1, cutoff=0.6)
    if close:
        return f"did you mean {by_folded[close[0]]!r}?"
    if not candidates:
        return "there is none"
    first = ", ".join(candidates[:8])
    return f"there are: {first}{', ...' if len(candidates) > 8 else ''}"


def similar(name: str, known: Iterable[str]) -> str | None:
    """The known name that this may be a misspelling of; not one that differs in digits alone, as ``worker-2`` does."""
    candidates = [other for other in known if other != name and _DIGITS.sub("0", other) != _DIGITS.sub("0", name)]
    close = difflib.get_close_matches(name, sorted(candidates), n=1, cutoff=_MISSPELT)
    return close[0] if close else None


__all__ = [
    "NAME_PATTERN",
    "NamespaceName",
    "ProducerName",
    "SubscriptionName",
    "TopicName",
    "folded",
    "nearest",
    "parse_label",
    "parse_namespace_name",
    "parse_producer_name",
    "parse_subscription_name",
    "parse_topic_name",
    "parse_topic_names",
    "quoted_name",
    "similar",
]
