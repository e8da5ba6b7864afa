"""Permits for clients of one's own."""

from __future__ import annotations

import asyncio
import gc
import urllib.error
import urllib.request
from datetime import UTC, datetime

import httpx
import pytest
import requests
import urllib3

from tidegate import Lane, RateLimitExceeded, ValidationError


class Answer:
    def __init__(self, status_code, headers=None):
        self.status_code = status_code
        self.headers = headers or {}


def lane_of(name, **options):
    return Lane(f"https://{name}.example", **options)


def test_a_permit_is_settled_with_what_came_back():
    lane = lane_of("settled")
    with lane.admit() as permit:
        assert lane.snapshot()["in_flight"] == 1 and not permit.settled
        verdict = permit.settle(Answer(200))
    assert (verdict.kind, verdict.code, verdict.status, verdict.not_before) == ("done", "OK", 200, None)
    several = [
        {"Retry-After": "7"},
        [("retry-after", "7")],
        [(b"Retry-After", b"7")],
        urllib3.HTTPHeaderDict({"Server": "x", "Retry-After": "7"}),
        httpx.Headers({"retry-after": "7"}),
        requests.structures.CaseInsensitiveDict({"RETRY-AFTER": "7"}),
    ]
    for number, headers in enumerate(several):
        before = datetime.now(UTC)
        with lane_of(f"hinted{number}").admit() as permit:
            verdict = permit.settle(status=429, headers=headers)
        assert (verdict.kind, verdict.code) == ("throttled", "RATE_LIMITED")
        assert (verdict.not_before - before).total_seconds() > 6.99
        assert (verdict.not_before - datetime.now(UTC)).total_seconds() < 8
    with lane.admit() as permit:
        assert permit.settle(exception=ConnectionRefusedError()).code == "CONNECTION_REFUSED"
    now = lane.snapshot()
    assert (now["in_flight"], now["settled"], now["released"]) == (0, 2, 0)
    assert now["statuses"] == {200: 1, 0: 1}


def test_a_profile_looks_into_the_body():
    lane = lane_of("body", profile="google", key="env:PATH")
    with lane.admit() as permit:
        body = b'{"status": "OVER_QUERY_LIMIT", "results": []}'
        verdict = permit.settle(status=200, headers={"content-type": "application/json"}, content=body)
    assert verdict.kind == "throttled"


def test_what_is_not_settled_is_given_back():
    lane = lane_of("given-back")
    with lane.admit():
        pass
    with pytest.raises(ZeroDivisionError), lane.admit():
        _ = 1 // 0
    lane.admit().release()
    permit = lane.admit()
    assert lane.snapshot()["in_flight"] == 1
    del permit
    gc.collect()
    assert (lane.snapshot()["in_flight"], lane.snapshot()["released"]) == (0, 4)


def test_an_exception_of_a_client_settles():
    lane = lane_of("raised")
    with pytest.raises(urllib.error.HTTPError), lane.admit():
        raise urllib.error.HTTPError("u", 503, "down", {"Retry-After": "600"}, None)
    assert lane.snapshot()["statuses"] == {503: 1}
    with pytest.raises(RateLimitExceeded):
        lane_of("raised", patience=1).admit()


def test_misuse_is_told():
    lane = lane_of("misused")
    permit = lane.admit()
    with pytest.raises(ValidationError, match="settle takes"):
        permit.settle("text")
    permit.settle(status=200)
    with pytest.raises(ValidationError, match="before"):
        permit.settle(status=200)
    with pytest.raises(ValidationError, match="not an outcome"):
        lane.admit().settle(exception=KeyError("a"))
    assert lane.snapshot()["in_flight"] == 0


def test_async_permits_wait_for_their_turn():
    lane = lane_of("turns", policy={"rate_limit": {"max_in_flight": 1}})

    async def one(done):
        async with lane.admit_async() as permit:
            assert lane.snapshot()["in_flight"] == 1
            await asyncio.sleep(0.01)
            permit.settle(status=200)
            done.append(1)

    async def main():
        done = []
        await asyncio.gather(*(one(done) for _ in range(10)))
        assert len(done) == 10
        permit = await lane.admit_async()
        waiting = asyncio.ensure_future(lane._admit_async())
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        permit.release()

    asyncio.run(main())
    # The one that was cancelled holds nothing.
    lane.admit().release()
    assert lane.snapshot()["in_flight"] == 0
