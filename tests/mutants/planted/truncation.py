"""Bugs planted in truncation: of transactions, and of what Spark overwrites."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import COMMIT_ORDER, OVERWRITE_FAULTS, TRUNCATE, TRUNCATE_ATTACKED

MUTANTS: Final = (
    Mutant(
        "a truncation shares its entry",
        "txnlog/client/truncation.py",
        "    alone = BY_ITSELF\n",
        "    alone = None\n",
        "rows of others come with the version of a complete result, and commits behind it are overtaken",
        (TRUNCATE + "its_entry_is_its_own_and_commits_keep_the_order_of_the_calls",),
    ),
    Mutant(
        "a truncation that waits is overtaken",
        "txnlog/log/append_queue.py",
        "                    queue.appendleft(asked)\n"
        "                else:\n"
        "                    batch.append(asked)\n"
        "                break\n",
        "                    kept.append(asked)\n"
        "                    continue\n"
        "                batch.append(asked)\n"
        "                break\n",
        "who commits behind it loses the rows",
        (TRUNCATE_ATTACKED + "nobody_overtakes_a_truncation_that_waits",),
    ),
    Mutant(
        "a truncation in the background is prepared again",
        "txnlog/client/transaction_machine.py",
        "                if in_background or look == _MOST_LOOKS:\n",
        "                if look == _MOST_LOOKS:\n",
        "commits that were called later overtake it, and lose their rows",
        (COMMIT_ORDER + "a_truncation_that_is_out_of_date_is_overtaken_by_nobody",),
    ),
    Mutant(
        "a commit in the background is ready while a call of its transaction is under way",
        "txnlog/client/transaction_machine.py",
        "        return self._turn.is_taken or self.work.needs_files or bool(self.work.truncated)\n",
        "        return self.work.needs_files or bool(self.work.truncated)\n",
        "commits that were called later overtake it: a batch is skipped as an older one, with success",
        (COMMIT_ORDER + "a_batch_is_not_skipped_although_its_transaction_is_at_work_yet",),
    ),
    Mutant(
        "a truncation of unknown outcome is not prepared again",
        "txnlog/client/transaction_machine.py",
        "            if self.life.stage is Stage.OPEN or self.life.stage in UNANSWERED:\n",
        "            if self.life.stage is Stage.OPEN:\n",
        "commit_async never succeeds once a checkpoint was written",
        (TRUNCATE_ATTACKED + "commit_async_after_an_unknown_outcome_ends_some_time",),
    ),
    Mutant(
        "a truncation foresees no first messages",
        "txnlog/client/truncation.py",
        "for partition, number in enumerate(numbers)\n",
        "for partition, number in enumerate(numbers)\n        if session.follower.state.end_of(topic.id, partition)\n",
        "it fails where a commit ahead of it brings a partition its first messages",
        (COMMIT_ORDER + "rows_behind_the_truncation_of_a_topic_without_messages_stay",),
    ),
    Mutant(
        "a truncation knows only what its client knows",
        "txnlog/api/transaction.py",
        "        record = self._connection.topic_handle(topic).record\n        check_feature(",
        "        record = self._connection.topic_record(topic)\n        check_feature(",
        "a topic that another client made does not exist",
        (TRUNCATE + "a_topic_that_another_client_made_is_found_by_truncate_as_by_produce",),
    ),
    Mutant(
        "what was planned goes before the next plan is there",
        "txnlog/client/transaction_work.py",
        "            self.truncations = await self._session.runtime.job(self._plan_truncations)\n",
        "            self.truncations = []\n"
        "            self.truncations = await self._session.runtime.job(self._plan_truncations)\n",
        "a commit whose preparation failed ends with an error of the program for ever",
        (TRUNCATE_ATTACKED + "a_commit_of_unknown_outcome_whose_preparation_fails_later_truncates_all_the_same",),
    ),
    Mutant(
        "messages that came meanwhile stay",
        "txnlog/client/truncation.py",
        "        gone += [record.number for record in new]\n",
        "",
        "two contents of a topic, and an entry that the log refuses",
        (TRUNCATE + "messages_that_others_commit_before_its_entry_go",),
    ),
    Mutant(
        "what a subscription needs goes",
        "txnlog/client/truncation.py",
        "        if count:\n            needed[subscription.name] = count\n",
        "",
        "a consumer never gets messages that it had still to receive",
        (TRUNCATE + "messages_that_a_subscription_needs_are_kept",),
    ),
    Mutant(
        "what another transaction acknowledged counts",
        "txnlog/client/truncation.py",
        "        if hold.txn == txn:\n",
        "        if hold.txn:\n",
        "its abort redelivers messages that are gone",
        (TRUNCATE + "what_another_transaction_acknowledged_and_did_not_commit_is_needed",),
    ),
    Mutant(
        "merged rows are nobody's",
        "txnlog/client/truncation.py",
        "        if later:\n            return Written(later, pc.max(versions).as_py())\n",
        "",
        "a complete result takes away what somebody else wrote, once it was merged",
        (TRUNCATE_ATTACKED + "rows_of_others_are_found_although_they_were_merged",),
    ),
    Mutant(
        "a topic is emptied before its job",
        "spark_ext/write/dataframe_transaction.py",
        "        if overwrites and topic in self._begun:\n",
        "        if False:\n",
        "rows that the same transaction appends stay next to those that overwrite",
        (OVERWRITE_FAULTS + "a_topic_that_a_job_of_the_transaction_writes_to_cannot_be_overwritten",),
    ),
)
