"""Skipped waits: what a policy waits for is known, and takes milliseconds."""

import time
import urllib.error

import tidegate


def refused(status, **headers):
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return urllib.error.HTTPError("http://geo.example", status, "refused", named, None)


def test_hours_pass_in_milliseconds(virtual_clock):
    answers = [refused(503, Retry_After="1800"), refused(503, Retry_After="1800"), "done"]

    @tidegate.retry({"max_attempts": 4, "base_delay": "1s", "max_delay": "1h", "deadline": "3h"}, patience="3h")
    def call():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    began = time.monotonic()
    assert call() == "done"
    # Never earlier than the server asked.
    assert virtual_clock.waited >= 3600
    assert time.monotonic() - began < 60
    virtual_clock.reset()
    assert virtual_clock.waited == 0


def test_afterwards_time_is_real_again(virtual_clock):
    virtual_clock.stop()
    answers = [refused(503), "done"]

    @tidegate.retry({"max_attempts": 2, "base_delay": "100ms", "jitter": "none", "deadline": "30s"})
    def call():
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    began = time.monotonic()
    assert call() == "done" and time.monotonic() - began >= 0.09 and virtual_clock.waited == 0
