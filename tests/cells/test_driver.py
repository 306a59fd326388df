"""Steps in threads."""

import threading

from mas_lab.cells.driver import step_threads


def test_what_has_not_begun_when_another_step_breaks_never_does():
    begun, ending = [], threading.Event()
    with step_threads(1) as workers:
        first = workers.submit(lambda: ending.wait(60))
        second = workers.submit(lambda: begun.append("second"))
    ending.set()
    assert second.cancelled() and first.result(60) and begun == []
