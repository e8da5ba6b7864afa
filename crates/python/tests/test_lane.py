"""Lanes against the misbehaving provider."""

from __future__ import annotations

import asyncio
import gc
import pickle
import subprocess
import sys
from datetime import UTC, datetime

import pytest

import tidegate
from tidegate import CallError, CircuitOpen, Lane, RateLimitExceeded, ValidationError

FAST = {"base_delay": "10ms", "max_delay": "1s"}


def test_get_returns_the_response_and_how_the_call_went(chaos_server):
    lane = Lane(chaos_server().url)
    response = lane.get("/geocode", params={"q": "1 Main Street", "limit": 1, "none": None})
    assert response.ok and response.outcome == "done" and response.code == "OK"
    assert (response.status, response.status_code, response.attempts) == (200, 200, 1)
    assert response.json()["query"] == "1 Main Street"
    assert response.headers["content-type"].startswith("application/json")
    assert response.url.endswith("/geocode?q=1+Main+Street&limit=1")
    assert response.content.decode() == response.text and response.not_before is None
    response.raise_for_outcome()
    assert lane.get("geocode?q=http://a/b#c").url.startswith(f"{lane.url}geocode?q=http://a/b")


def test_what_fails_at_first_is_retried(chaos_server):
    server = chaos_server("--status", "503=first:2")
    response = Lane(server.url, policy=FAST).get("/geocode?q=a")
    assert response.attempts == 3
    assert server.stats()["by_status"] == {"200": 1, "503": 2}


def test_a_permanent_failure_costs_one_call_and_says_what_the_server_said(chaos_server):
    server = chaos_server("--bad-rows", "100%")
    with pytest.raises(CallError) as caught:
        Lane(server.url, policy=FAST).get("/geocode?q=a")
    error = caught.value
    assert (error.outcome, error.code, error.status, error.attempts) == ("permanent_400", "BAD_REQUEST", 400, 1)
    assert error.response.status == 400 and not error.response.ok
    assert "permanent_400 after 1 attempt" in str(error)
    assert server.stats()["requests"] == 1
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.outcome, copy.response, str(copy)) == (CallError, error.outcome, None, str(error))


def test_all_attempts_are_used_and_counted(chaos_server):
    server = chaos_server("--status", "503=100%")
    with pytest.raises(CallError) as caught:
        Lane(server.url, policy={**FAST, "max_attempts": 3, "outages_free": 0}).get("/geocode?q=a")
    assert (caught.value.outcome, caught.value.attempts) == ("transient_503_exhausted", 3)
    assert server.stats()["requests"] == 3


def test_no_match_is_an_answer(chaos_server):
    server = chaos_server("--no-match", "100%")
    lane = Lane(f"{server.url}", profile="generic")
    response = lane.get("/geocode?q=nowhere")
    assert (response.ok, response.attempts) == (True, 1)
    assert response.json()["results"] == []


def test_a_profile_finds_the_error_in_a_200(chaos_server):
    server = chaos_server("--error-200", "first:1")
    plain = Lane(server.url, policy=FAST).get("/pelias/v1/search?text=a")
    assert plain.attempts == 1, "without a profile a 200 is an answer"
    lane = Lane(f"{server.url}/pelias", profile="pelias", policy=FAST)
    assert lane.get("/v1/search?text=b").attempts == 2


def test_a_longer_wait_than_patience_says_when_to_come_back(chaos_server):
    server = chaos_server("--throttle", "fixed:1/1h", "--headers", "retry-after")
    lane = Lane(server.url, patience="2s")
    assert lane.get("/geocode?q=a").ok
    with pytest.raises(RateLimitExceeded) as caught:
        lane.get("/geocode?q=b")
    assert caught.value.not_before > datetime.now(UTC)
    assert 0 < caught.value.seconds() <= 3700
    sent = server.stats()["requests"]
    # The whole lane knows it now: nothing else is sent.
    with pytest.raises(RateLimitExceeded):
        lane.get("/geocode?q=c")
    with pytest.raises(RateLimitExceeded):
        lane.admit()
    assert server.stats()["requests"] == sent


def test_a_server_that_is_down_opens_the_breaker(chaos_server):
    server = chaos_server("--status", "500=100%")
    policy = {"retry_policy": {"max_attempts": 1, "base_delay": "10ms", "outages_free": 0}}
    policy["circuit_breaker"] = {"minimum_calls": 3, "cooldown": "10m", "cooldown_max": "10m"}
    lane = Lane(server.url, policy=policy, patience="1s")
    for _ in range(3):
        with pytest.raises(CallError):
            lane.get("/geocode?q=a")
    assert lane.snapshot()["breaker"] == "open"
    with pytest.raises(CircuitOpen) as caught:
        lane.get("/geocode?q=a")
    assert caught.value.outcome == "circuit_open" and caught.value.not_before is not None
    assert server.stats()["requests"] == 3


def test_post_sends_a_body_and_is_repeated_only_if_that_is_safe(chaos_server):
    server = chaos_server("--status", "500=first:1")
    lane = Lane(server.url, policy=FAST)
    with pytest.raises(CallError) as caught:
        lane.post("/geocode", json={"addresses": ["a"]})
    assert caught.value.outcome == "transient_500_not_repeatable"
    done = lane.post("/geocode", json={"addresses": ["b"]}, headers={"Idempotency-Key": "7"})
    assert (done.attempts, done.status) == (2, 200)


def test_map_keeps_the_order_and_answers_for_every_request(chaos_server):
    server = chaos_server("--bad-rows", "20%", "--service-ms", "0..5")
    lane = Lane(server.url, policy=FAST)
    names = [f"a{n}" for n in range(200)]
    responses = list(lane.map({"url": "/geocode", "params": {"q": name}} for name in names))
    assert len(responses) == 200
    for name, response in zip(names, responses, strict=True):
        assert response.url.endswith(f"q={name}")
        assert response.ok == (response.status == 200)
        assert response.outcome in ("done", "permanent_400")
    assert any(not response.ok for response in responses)
    anyhow = list(lane.map((f"/geocode?q={name}" for name in names), ordered=False, window=16))
    assert sorted(response.url for response in anyhow) == sorted(response.url for response in responses)


def test_answers_do_not_wait_for_a_call_that_hangs(chaos_server):
    server = chaos_server("--hang", "@1")
    lane = Lane(server.url)
    names = [f"/geocode?q={n}" for n in range(20)]
    responses = lane.map(names, ordered=False, window=20)
    assert [next(responses).ok for _ in range(19)] == [True] * 19
    # No more: the call that hangs was not given up and sent again meanwhile.
    assert server.stats()["requests"] == 20
    del responses

    async def main(server):
        lane = Lane(server.url)
        calls = [lane.get_async(name) for name in names]
        done = asyncio.as_completed(calls)
        assert [(await next(done)).ok for _ in range(19)] == [True] * 19
        assert server.stats()["requests"] == 20
        for call in calls:
            call.cancel()

    asyncio.run(main(chaos_server("--hang", "@1")))


def test_map_takes_no_more_requests_than_its_window(chaos_server):
    taken = 0

    def requests():
        nonlocal taken
        for n in range(1000):
            taken += 1
            yield f"/geocode?q={n}"

    lane = Lane(chaos_server().url)
    responses = lane.map(requests(), window=10)
    assert next(responses).ok
    assert taken <= 20
    del responses
    gc.collect()
    with pytest.raises(ValidationError, match="window"):
        lane.map([], window=0)
    with pytest.raises(ValidationError, match="map takes"):
        next(lane.map([7]))
    with pytest.raises(ZeroDivisionError):
        next(lane.map(1 // 0 for _ in range(1)))


def test_map_tells_every_request_that_the_lane_is_shut(chaos_server):
    server = chaos_server("--throttle", "fixed:1/1h", "--headers", "retry-after")
    lane = Lane(server.url, patience="1s")
    responses = list(lane.map([f"/geocode?q={n}" for n in range(20)]))
    assert len(responses) == 20
    assert sum(response.ok for response in responses) == 1
    assert all(response.not_before is not None for response in responses if not response.ok)


def test_async_twins(chaos_server):
    server = chaos_server("--status", "503=@1", "--bad-rows", "10%")
    lane = Lane(server.url, policy=FAST)

    async def main(turn):
        one = await lane.get_async("/geocode", params={"q": "alpha"})
        assert one.attempts == (2 if turn == 0 else 1)
        posted = await lane.post_async("/geocode", json={"addresses": ["b"]}, headers={"idempotency-key": "1"})
        assert posted.ok
        calls = (lane.get_async(f"/geocode?q=n{n}-{turn}") for n in range(100))
        many = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(got, CallError) or got.ok for got in many)
        assert any(isinstance(got, CallError) for got in many)
        ordered = [response.url async for response in lane.map_async([f"/geocode?q=m{n}" for n in range(50)])]
        assert ordered == [f"{server.url}/geocode?q=m{n}" for n in range(50)]

    for turn in range(3):  # a new event loop each time
        asyncio.run(main(turn))


def test_a_cancelled_call_gives_its_permit_back(chaos_server):
    lane = Lane(chaos_server("--hang", "100%").url)

    async def main():
        call = lane.get_async("/geocode?q=a")
        while lane.snapshot()["in_flight"] == 0:
            await asyncio.sleep(0.01)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        while lane.snapshot()["in_flight"] == 1:
            await asyncio.sleep(0.01)

    asyncio.run(main())
    now = lane.snapshot()
    assert (now["in_flight"], now["released"]) == (0, 1)


def test_an_answer_that_nobody_waited_for_is_the_next(chaos_server):
    lane = Lane(chaos_server("--service-ms", "200").url)
    urls = [f"/geocode?q={n}" for n in range(6)]

    async def main():
        responses = lane.map_async(urls, window=6)
        got = []
        while True:
            try:
                got.append((await asyncio.wait_for(anext(responses), 0.03)).url)
            except TimeoutError:
                continue
            except StopAsyncIteration:
                return got

    got = asyncio.run(main())
    assert [url[-1] for url in got] == ["0", "1", "2", "3", "4", "5"]


def test_a_loop_that_ends_with_calls_under_way_hurts_nobody(chaos_server):
    lane = Lane(chaos_server("--service-ms", "300").url)

    async def main():
        lane.get_async("/geocode?q=a")

    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(main())
        loop.close()
    assert lane.get("/geocode?q=b").ok


def test_one_lane_per_host_and_credential(chaos_server, monkeypatch):
    server = chaos_server()
    first, second = Lane(server.url), Lane(f"{server.url}/geocode", policy=FAST)
    first.get("/geocode?q=a")
    second.get("?q=b")
    assert first.snapshot()["sent"] == second.snapshot()["sent"] == 2
    monkeypatch.setenv("PYLANE_TEST_KEY", "hush")
    other = Lane(server.url, profile="opencage", key="env:PYLANE_TEST_KEY")
    assert other.snapshot()["sent"] == 0 and "env:PYLANE_TEST_KEY" in other.name
    assert "hush" not in repr(other)


def test_an_invalid_argument_is_refused_before_anything_is_sent():
    for match, make in [
        ("invalid URL", lambda: Lane("not a url")),
        ("unsupported URL scheme", lambda: Lane("ftp://a.example")),
        ("no profile|unknown profile|nominatm", lambda: Lane("https://a.example", profile="nominatm")),
        ("max_attempt", lambda: Lane("https://a.example", policy={"max_attempt": 3})),
        ("max_attempts", lambda: Lane("https://a.example", policy={"max_attempts": 0})),
        ("not a duration", lambda: Lane("https://a.example", patience="soon")),
        ("header", lambda: Lane("https://a.example", headers={"a b": "c"})),
        ("a url or a profile", lambda: Lane()),
        ("needs a profile", lambda: Lane("https://a.example", key="env:PATH")),
        ("env:NAME or file:PATH", lambda: Lane("https://a.example", profile="opencage", key="secret")),
        ("shared", lambda: Lane("https://a.example", shared="gopher://x")),
        ("policy", lambda: Lane("https://a.example", policy={"max_attempts": object()})),
        ("no such file", lambda: Lane("https://a.example", policy="/no/such/file.yaml")),
    ]:
        with pytest.raises(ValidationError, match=match):
            make()


def test_another_host_is_not_called(chaos_server):
    lane = Lane(chaos_server().url, policy=FAST)
    with pytest.raises(CallError) as caught:
        lane.get("http://127.0.0.2:9/")
    assert caught.value.code == "HOST_NOT_ALLOWED"


def test_a_policy_file_is_read(chaos_server, tmp_path):
    path = tmp_path / "policy.yaml"
    path.write_text(
        "pipeline:\n  retry_policy: { max_attempts: 2, base_delay: 10ms }\n  circuit_breaker: { minimum_calls: 100 }\n"
    )
    server = chaos_server("--status", "503=100%")
    with pytest.raises(CallError) as caught:
        Lane(server.url, policy=path).get("/geocode?q=a")
    assert caught.value.attempts == 2


def test_a_wait_outlives_the_process(chaos_server, tmp_path):
    server = chaos_server("--throttle", "fixed:1/1h", "--headers", "retry-after")
    code = (
        "import sys, tidegate\n"
        "lane = tidegate.Lane(sys.argv[1], patience='1s', state=sys.argv[2])\n"
        "try:\n"
        "    print(lane.get('/geocode?q=' + sys.argv[3]).ok, lane.get('/geocode?q=x').ok)\n"
        "except tidegate.RateLimitExceeded as error:\n"
        "    print(error.not_before.isoformat())\n"
    )
    for turn in ("a", "b"):
        done = subprocess.run(
            [sys.executable, "-c", code, server.url, str(tmp_path), turn], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("20"), done.stdout
    assert server.stats()["requests"] == 2, "the second process asked for nothing"


def test_import_is_lazy():
    code = "import sys, tidegate; print([m for m in sys.modules if m.startswith('tidegate')], 'asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "['tidegate'] False", done.stdout
    assert set(tidegate.__all__) <= set(dir(tidegate))
    for name in tidegate.__all__:
        assert getattr(tidegate, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = tidegate.nothing
