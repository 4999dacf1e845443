"""Work in a forked child."""

from __future__ import annotations

import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import Any

_PATIENCE_S = 30


def in_child(work: Callable[[], Any]) -> Any:
    """What a function gives, or raises, in a forked child; one that hangs is killed and fails the test."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(_PATIENCE_S)
        try:
            os.close(reading)
            try:
                answer: tuple[bool, Any] = (True, work())
            except BaseException as error:  # noqa: BLE001 - it is the answer
                answer = (False, error)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(pickle.dumps(answer))
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child has nobody else to tell
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    assert status == 0, f"the child hangs, or cannot say what became of it: {status}"
    succeeded, answer_or_error = pickle.loads(data)
    if not succeeded:
        raise answer_or_error
    return answer_or_error
