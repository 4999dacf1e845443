"""Bugs planted in txnlog/engine: waits, interrupts, forks, threads."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Mutant
from tests.mutants.names import (
    BACKGROUND,
    CLOSING,
    ENGINE,
    HANGING,
    INTERRUPTED_SKIPS,
    INTERRUPTED_WAITS,
    NO_THREAD,
    SCARCE_THREADS,
)

MUTANTS: Final = (
    Mutant(
        "a callback waits for one behind it",
        "txnlog/engine/promises.py",
        "        super().add_done_callback(partial(_pass_on, self._call_back, fn))\n",
        "        super().add_done_callback(fn)\n",
        "a callback that asks another Future hangs, and all that come behind it",
        (BACKGROUND + "a_callback_may_wait_for_another_future",),
    ),
    Mutant(
        "a child goes on with its parent's engine",
        "txnlog/engine/engine.py",
        "    _of_process.clear()\n",
        "    pass\n",
        "every call of a forked child hangs: the thread that it waits for is not there",
        (ENGINE + "a_forked_child_has_an_engine_of_its_own",),
    ),
    Mutant(
        "a thread that is idle ends without a look",
        "txnlog/engine/worker.py",
        "                if self._inbox.is_empty() or not self._sit_down():\n",
        "                if True:\n",
        "a call that comes at that moment waits for ever",
        (ENGINE + "a_step_that_comes_while_the_thread_ends_is_run",),
    ),
    Mutant(
        "a request is left when its caller is interrupted",
        "txnlog/engine/engine.py",
        "        elif effect.cancel(self):\n",
        "        elif effect.cancel(self) or True:\n",
        "an entry that was sent has no owner: what the handle has in memory is not what the log says",
        (ENGINE + "a_request_under_way_goes_on_when_the_wait_is_interrupted",),
    ),
    Mutant(
        "two threads run the steps",
        "txnlog/engine/worker.py",
        "        except IndexError:\n            return False\n        self._thread = self._host.current()\n",
        "        except IndexError:\n            pass\n        self._thread = self._host.current()\n",
        "after a Ctrl-C in the wrong moment commands run at the same time, without a lock",
        (ENGINE + "of_threads_that_were_begun_one_runs_steps",),
    ),
    Mutant(
        "a cancelled pause goes on",
        "txnlog/engine/effects.py",
        "        self._end()\n",
        "        pass\n",
        "a thread that has nothing to do stays, and with it the fork of a process that has threads",
        (ENGINE + "the_interrupt_of_a_wait_ends_a_command_that_waits_for_time",),
    ),
    Mutant(
        "a wait hides a signal",
        "txnlog/engine/worker.py",
        "timeout=_LONGEST_WAIT_S if timeout_ms is None else",
        "timeout=None if timeout_ms is None else",
        "a Ctrl-C that comes just before the wait is heard when the wait is over, perhaps never",
        (ENGINE + "no_wait_lasts_longer_than_a_signal_may_be_late",),
    ),
    Mutant(
        "who blocks keeps the steps",
        "txnlog/engine/worker.py",
        "            return False\n        self._get_up()\n        if not self._inbox.is_empty() and",
        "            return False\n        if not self._inbox.is_empty() and",
        "a store that does not answer stops the handles of every other one",
        (ENGINE + "steps_that_come_while_the_thread_blocks_are_run_by_another_one",),
    ),
    Mutant(
        "any number of threads block",
        "txnlog/engine/worker.py",
        "            self._aside.pop()\n        except IndexError:\n            return False\n",
        "            self._aside.pop()\n        except IndexError:\n            pass\n",
        "as many threads as requests that do not end",
        (ENGINE + "no_more_threads_block_than_there_may_be",),
    ),
    Mutant(
        "the thread blocks before a step that waits",
        "txnlog/engine/worker.py",
        "        if self._timers or not self._inbox.is_empty():\n            return False\n"
        "        try:\n            self._aside.pop()\n        except IndexError:\n            return False\n"
        "        self._get_up()\n        if not self._inbox.is_empty() and self._sit_down():\n",
        "        if self._timers:\n            return False\n"
        "        try:\n            self._aside.pop()\n        except IndexError:\n            return False\n"
        "        self._get_up()\n        if False:\n",
        "a call waits for a request that is not its own",
        (ENGINE + "what_blocks_waits_for_no_step_that_is_there_already",),
    ),
    Mutant(
        "who is behind another one does not wake the engine",
        "txnlog/engine/admission.py",
        "        if not first.is_announced:\n",
        "        if first is admitted:\n",
        "a commit waits until somebody else appends, perhaps for ever",
        (
            INTERRUPTED_WAITS
            + "who_is_behind_a_call_that_was_interrupted_before_the_engine_heard_of_it_is_not_forgotten",
        ),
    ),
    Mutant(
        "what a pool queued without a thread is made twice",
        "txnlog/engine/runtime.py",
        "            if next(calls) == 0:\n                work()\n",
        "            work()\n",
        "an entry that was reported as not written is there later; a commit is acknowledged before its files are there",
        (SCARCE_THREADS + "a_request_for_which_a_pool_found_no_thread_is_made_once",),
    ),
    Mutant(
        "an effect that cannot begin ends nothing",
        "txnlog/engine/engine.py",
        "            except Exception as error:  # noqa: BLE001 - as no thread",
        "            except ZeroDivisionError as error:  # noqa: BLE001 - as no thread",
        "every later call of the handle waits for ever",
        (SCARCE_THREADS + "a_handle_whose_check_found_no_thread_once_goes_on",),
    ),
    Mutant(
        "a finalizer may call the client in its own request",
        "txnlog/log/appender.py",
        "        if self._runtime.current() in self._requesting:\n",
        "        if not self._runtime:\n",
        "the garbage collector hangs the handle for ever",
        (SCARCE_THREADS + "generators_that_are_left_behind_with_a_transaction_hold_up_nobody",),
    ),
    Mutant(
        "a closed handle forgets what it was given",
        "txnlog/log/appender.py",
        "            if not (self._is_appending or self._submitted or self._queue or self._admission):\n",
        "            if not (self._is_appending or self._queue or self._admission):\n",
        "a commit in the background that close() is to finish is refused",
        (CLOSING + "close_finishes_a_commit_that_has_not_come_to_its_entry",),
    ),
    Mutant(
        "two commands of one transaction at a time",
        "txnlog/engine/effects.py",
        "        if self._is_taken:\n            return self._wait()\n",
        "",
        "an abort beside a flush leaves the transaction open in the log",
        (ENGINE + "commands_have_their_turn_in_the_order_in_which_they_came",),
    ),
    Mutant(
        "who leaves the row keeps the turn",
        "txnlog/engine/effects.py",
        "            else:  # it was given the turn just now\n                self._give()\n            raise\n",
        "            raise\n",
        "after a Ctrl-C every later call of the transaction waits for ever",
        (ENGINE + "who_is_interrupted_when_it_is_given_its_turn_gives_it_on",),
    ),
    Mutant(
        "a wait begins with an old wake-up",
        "txnlog/engine/worker.py",
        "            return self._items.get_nowait()\n",
        "            pass\n",
        "on a machine under load the engine waits for ever, and with it every call of the process",
        (ENGINE + "a_short_wait_behind_an_item_that_is_there_ends",),
    ),
    Mutant(
        "who hands back a step loses it where no thread can be started",
        "txnlog/engine/worker.py",
        "        except RetriableError:\n            self._run()\n",
        "        except RetriableError:\n            pass\n",
        "a commit waits for ever, though threads can be started again at once",
        (NO_THREAD + "a_call_whose_request_ended_while_no_thread_could_be_started_ends",),
    ),
    Mutant(
        "an error of the withdrawal takes the place of the interrupt",
        "txnlog/engine/engine.py",
        "                with suppress(RetriableError):  # of no thread for it",
        "                if True:  # of no thread for it",
        "after Ctrl-C a call says that nothing was written, and what is repeated is there twice",
        (NO_THREAD + "an_interrupt_while_no_thread_can_be_started_does_not_say_that_nothing_was_written",),
    ),
    Mutant(
        "a command is cancelled behind what it sent",
        "txnlog/engine/engine.py",
        "        self._is_cancelled, self._is_shielded = False, True\n",
        "        pass\n",
        "after Ctrl-C in its commit a batch that was done before stays open in the log, and commit() raises KeyError",
        (INTERRUPTED_SKIPS + "the_commit_of_a_skipped_batch_is_interrupted_and_made_again",),
    ),
    Mutant(
        "the threads keep the process",
        "txnlog/engine/worker.py",
        "threading.Thread(target=work, name=name, daemon=True).start()",
        "threading.Thread(target=work, name=name, daemon=False).start()",
        "a process whose store does not answer never ends",
        (HANGING + "a_process_whose_store_hangs_ends_within_a_minute",),
    ),
)
