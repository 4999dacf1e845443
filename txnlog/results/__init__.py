"""What operations answer: small values with a short repr and an HTML one for notebooks."""

from __future__ import annotations

from txnlog.results.doctor import DoctorFinding, DoctorKind, DoctorReport, DoctorSeverity
from txnlog.results.log import (
    Committed,
    EntryInfo,
    PartitionCursor,
    PartitionLag,
    SubscriptionInfo,
    TopicInfo,
    TransactionInfo,
    Unreadable,
    UnreadableTopic,
)
from txnlog.results.maintenance import (
    BackedUp,
    CheckLevel,
    Compacted,
    DeletedRecords,
    Erased,
    FileWithErasedRows,
    Finding,
    FindingKind,
    FsckReport,
    KeptFor,
    Maintained,
    Optimized,
    Restored,
    RetentionInfo,
    Severity,
    Vacuumed,
)
from txnlog.results.shown import Listing

__all__ = [
    "BackedUp",
    "CheckLevel",
    "Committed",
    "Compacted",
    "DeletedRecords",
    "DoctorFinding",
    "DoctorKind",
    "DoctorReport",
    "DoctorSeverity",
    "EntryInfo",
    "Erased",
    "FileWithErasedRows",
    "Finding",
    "FindingKind",
    "FsckReport",
    "KeptFor",
    "Listing",
    "Maintained",
    "Optimized",
    "PartitionCursor",
    "PartitionLag",
    "Restored",
    "RetentionInfo",
    "Severity",
    "SubscriptionInfo",
    "TopicInfo",
    "TransactionInfo",
    "Unreadable",
    "UnreadableTopic",
    "Vacuumed",
]
