"""Steps of many callers for one task of the engine, which looks for them by itself while it is at work."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from txnlog.engine.effects import Step
from txnlog.errors import RetriableError


class _Admitted:
    """A step.

    Attributes:
        is_announced: whether the engine was asked to look while this was the first one.
    """

    __slots__ = ("is_announced", "step")

    def __init__(self, step: Step) -> None:
        self.step = step
        self.is_announced = False


class Admission:
    """Steps that wait for the engine. It is woken for the first of them only, and not at all while it is at work.

    To wake its thread for each of many would cost more than what most of them do.

    Args:
        wake: asks the engine to call ``run``. From any thread.
        is_at_work: whether the engine calls ``run`` by itself when it has come to the end of what it does.
    """

    def __init__(self, wake: Step, is_at_work: Callable[[], bool]) -> None:
        self._wake = wake
        self._is_at_work = is_at_work
        self._steps: deque[_Admitted] = deque()

    def add(self, step: Step) -> None:
        """Have a step run in the engine, behind those that were added before. From any thread.

        Raises RetriableError where no thread could be started, and nobody else will come to run it.
        """
        admitted = _Admitted(step)
        self._steps.append(admitted)
        if self._is_at_work():
            return
        try:
            first = self._steps[0]
        except IndexError:  # it was run meanwhile
            return
        if not first.is_announced:
            try:
                self._wake()
            except RetriableError:  # unless another caller started one just now
                if self._taken_out(admitted):
                    raise
            first.is_announced = True  # behind it: it may be interrupted

    def _taken_out(self, admitted: _Admitted) -> bool:
        try:
            self._steps.remove(admitted)
        except ValueError:
            return False
        return True

    def run(self) -> None:
        """Run what waits. In the engine."""
        steps = self._steps
        while steps:
            steps.popleft().step()

    def __len__(self) -> int:
        return len(self._steps)


__all__ = ["Admission"]
