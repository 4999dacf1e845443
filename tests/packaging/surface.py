"""The public calls with their parameters, and values with their attributes: what several tests ask for."""

from __future__ import annotations

import catalog
import txnlog
from catalog import Catalog, Published, PublishedVersion
from spark_ext.processing.run import Processed
from spark_ext.streaming.lag import TopicLag
from spark_ext.streaming.monitor import Monitor
from spark_ext.write.dataframe_transaction import DataFrameTransaction
from txnlog.api.consumer import Consumer
from txnlog.api.messages import Messages
from txnlog.api.namespace import Namespace
from txnlog.api.producer import Producer
from txnlog.api.snapshot import Snapshot
from txnlog.api.transaction import Transaction
from txnlog.results import Committed, TopicInfo

CALLS = {
    (txnlog, "open"): "root namespace create mode storage_options store clock min_commit_interval_ms "
    "client_name client_info",
    (txnlog, "backup"): "source destination version verify storage_options destination_storage_options progress store "
    "destination_store",
    (
        txnlog,
        "restore",
    ): "backup destination version dry_run storage_options destination_storage_options progress clock "
    "store destination_store",
    (Namespace, "create_topic"): "name schema partitions key if_not_exists properties delta merge "
    "retention_ms retention_bytes retain_unacknowledged message_ttl_ms "
    "cleanup_policy delete_retention_ms min_compaction_lag_ms compact_unacknowledged statistics",
    (Namespace, "topics"): "",
    (Namespace, "topic"): "name",
    (Namespace, "alter_topic"): "name add_columns widen properties delta merge retention_ms retention_bytes "
    "retain_unacknowledged message_ttl_ms "
    "cleanup_policy delete_retention_ms min_compaction_lag_ms compact_unacknowledged statistics",
    (Namespace, "drop_topic"): "name",
    (Namespace, "producer"): "name",
    (Namespace, "begin"): "timeout_ms txn_app_id txn_version",
    (Namespace, "last_txn_version"): "txn_app_id",
    (Namespace, "produce"): "topic data partition",
    (Namespace, "create_subscription"): "topic name type start lease_ms takeover max_redeliveries dead_letter_topic "
    "if_not_exists allow_short_lease",
    (Namespace, "subscriptions"): "topic",
    (Namespace, "subscription"): "topic name",
    (Namespace, "drop_subscription"): "topic name",
    (Namespace, "consumer"): "topics subscription type name",
    (Namespace, "lag"): "topic subscription",
    (Namespace, "snapshot"): "version timestamp",
    (Namespace, "transactions"): "state min_age_ms",
    (Namespace, "transaction"): "txn_id",
    (Namespace, "abort"): "txn_id by why force",
    (Namespace, "complete"): "token commit",
    (Namespace, "transact"): "work attempts options",
    (Namespace, "fence"): "producer by",
    (Namespace, "forget_app"): "txn_app_id",
    (Namespace, "enable"): "feature",
    (Namespace, "checkpoint"): "",
    (Namespace, "doctor"): "probe",
    (Namespace, "fsck"): "level progress",
    (Namespace, "repair"): "source dry_run source_storage_options progress",
    (Namespace, "vacuum"): "retain_ms grace_ms allow_short_retention dry_run before progress",
    (Namespace, "delete_records"): "topic before allow_unacknowledged dry_run",
    (Namespace, "retention"): "topic",
    (Namespace, "erase"): "topic where dry_run",
    (Namespace, "compact"): "topic max_bytes dry_run",
    (Namespace, "optimize"): "topic target_size_bytes max_bytes dry_run progress",
    (Namespace, "maintain"): "target_size_bytes max_bytes retain_ms grace_ms allow_short_retention before progress",
    (Namespace, "metrics"): "partitions",
    (Namespace, "table"): "name limit version timestamp",
    (Namespace, "history"): "limit",
    (Namespace, "close"): "",
    (Producer, "begin"): "timeout_ms txn_app_id txn_version",
    (Producer, "produce"): "topic data partition sequence",
    (Producer, "last_sequence"): "topic partition",
    (Producer, "close"): "",
    (Transaction, "produce"): "topic data partition sequence",
    (Transaction, "acknowledge"): "messages cumulative",
    (Transaction, "truncate"): "topic allow_unacknowledged",
    (Transaction, "flush"): "",
    (Transaction, "prepare"): "",
    (Transaction, "commit"): "",
    (Transaction, "commit_async"): "",
    (Transaction, "abort"): "",
    (DataFrameTransaction, "write"): "df topic mode allow_unacknowledged",
    (DataFrameTransaction, "acknowledge"): "messages cumulative",
    (DataFrameTransaction, "flush"): "",
    (DataFrameTransaction, "commit"): "",
    (DataFrameTransaction, "abort"): "",
    (Monitor, "lag"): "query",
    (Monitor, "metrics"): "",
    (Monitor, "close"): "",
    (Consumer, "receive"): "max_messages timeout_ms",
    (Consumer, "acknowledge"): "messages cumulative",
    (Consumer, "negative_acknowledge"): "messages",
    (Consumer, "redeliver_unacknowledged"): "",
    (Consumer, "seek"): "position topic",
    (Consumer, "close"): "",
    (catalog, "open"): "root storage_options store",
    (Catalog, "namespaces"): "",
    (Catalog, "namespace"): "name",
    (Catalog, "create_namespace"): "name if_not_exists",
    (Catalog, "adopt_namespace"): "name force",
    (Catalog, "drop_namespace"): "name",
    (Catalog, "register"): "spark namespace as_ topics names database replace",
    (Catalog, "publish"): "namespace topic",
    (Catalog, "published"): "namespace topic limit",
    (Catalog, "delta_version"): "namespace topic version",
    (Catalog, "repair"): "namespace topic",
    (Catalog, "close"): "",
    (Snapshot, "topics"): "",
    (Snapshot, "start_offsets"): "topic",
    (Snapshot, "end_offsets"): "topic",
    (Snapshot, "plan"): "topic offsets isolation_level",
    (Snapshot, "read"): "topic columns filter offsets isolation_level include_metadata",
    (Snapshot, "scan"): "topic columns filter offsets isolation_level include_metadata",
}

ATTRIBUTES = {
    Transaction: "id state result skipped",
    DataFrameTransaction: "id state result skipped rows",
    Processed: "batches rows dead_letters versions stopped lag",
    Monitor: "",
    TopicLag: "query source namespace topic subscription behind_messages behind_versions behind_ms "
    "min_offsets_behind_latest max_offsets_behind_latest avg_offsets_behind_latest metrics",
    Namespace: "name root store_requests",
    Consumer: "name",
    Producer: "name epoch",
    Messages: "topic table positions end_offsets redelivery_counts __len__ __getitem__",
    Snapshot: "version",
    Catalog: "root",
    Committed: "txn_id version offsets skipped duplicate dropped",
    TopicInfo: "name id schema partitions key properties",
    Published: "topic delta_version version timestamp_ms created repaired url",
    PublishedVersion: "delta_version version timestamp_ms",
}
