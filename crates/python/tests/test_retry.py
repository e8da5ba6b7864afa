"""Decorated functions: what is retried, what is told, what is left alone."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import urllib.error

import pytest

import tidegate
from tidegate import CallError, Lane, RateLimitExceeded, ValidationError

FAST = {"base_delay": "1ms", "max_delay": "10ms", "max_attempts": 4}


class Answer:
    headers: dict[str, str] = {}

    def __init__(self, status_code):
        self.status_code = status_code


class Status(Exception):
    """An error of no known client."""

    def __init__(self, status_code):
        super().__init__(f"status {status_code}")
        self.status_code = status_code


def exception(package, name, base=Exception, **fields):
    """An exception as a client would raise it, without the client."""
    kind = type(name, (base,), {"__module__": f"{package}.exceptions"})
    error = kind("said")
    for field, value in fields.items():
        setattr(error, field, value)
    return error


class Scripted:
    """Raises or returns what the script says, in order."""

    def __init__(self, *script):
        self.script = list(script)
        self.calls = 0

    def __call__(self, *args, **kwargs):
        self.calls += 1
        said = self.script.pop(0)
        if isinstance(said, BaseException):
            raise said
        return said


def run(*script, policy=FAST, **options):
    scripted = Scripted(*script)

    @tidegate.retry(policy, **options)
    def function():
        return scripted()

    try:
        return function(), scripted.calls
    except CallError as error:
        return error, scripted.calls


def test_transient_failures_are_retried_and_the_answer_returned():
    refused = ConnectionRefusedError()
    timeout = exception("requests", "ReadTimeout", exception("requests", "Timeout").__class__)
    assert run(refused, timeout, Answer(503), "value") == ("value", 4)


def test_a_function_has_nothing_of_one_that_is_gone():
    for _ in range(20):
        spent = urllib.error.HTTPError("u", 429, "m", {"Retry-After": "3000"}, None)
        assert isinstance(run(spent, patience="1s")[0], RateLimitExceeded)
        assert run("value", patience="1s") == ("value", 1)


def test_outcomes_are_words_of_the_taxonomy():
    def http(status, headers=None):
        return urllib.error.HTTPError("u", status, "m", headers or {}, None)

    for script, outcome, code, calls in [
        ([http(400)], "permanent_400", "BAD_REQUEST", 1),
        ([http(503)] * 4, "transient_503_exhausted", "SERVICE_UNAVAILABLE", 4),
        ([TimeoutError()] * 4, "network_timeout_exhausted", "TIMEOUT", 4),
        ([exception("ssl", "SSLError", OSError)], "permanent_tls_failure", "TLS_FAILURE", 1),
    ]:
        error, made = run(*script)
        assert (error.outcome, error.code, made) == (outcome, code, calls)
        assert error.__cause__ is script[-1]
    error, made = run(*[Answer(503)] * 4)
    assert (error.outcome, error.attempts, error.response.status_code, made) == ("transient_503_exhausted", 4, 503, 4)
    answer, made = run(Answer(404))
    assert (answer.status_code, made) == (404, 1), "an answer that a function returns is an answer"


def test_what_is_no_outcome_of_a_call_is_left_alone():
    for error in (KeyError("a"), ValueError("b"), FileNotFoundError("c"), Status(503)):
        with pytest.raises(type(error)) as caught:
            run(error)
        assert caught.value is error


def test_a_long_wait_is_told_with_its_end():
    error, calls = run(urllib.error.HTTPError("u", 429, "m", {"Retry-After": "3000"}, None), patience="1s")
    assert isinstance(error, RateLimitExceeded) and calls == 1
    assert 2900 < error.seconds() <= 3000
    assert RateLimitExceeded("x").seconds(default=7) == 7


def test_not_repeatable():
    error, calls = run(ConnectionResetError(), "value", repeatable=False)
    assert (error.outcome, calls) == ("network_reset_not_repeatable", 1)
    assert run(ConnectionRefusedError(), "value", repeatable=False) == ("value", 2)


def test_coroutines():
    scripted = Scripted(ConnectionResetError(), TimeoutError(), "value")
    lane = Lane("https://coroutines.example", policy=FAST)

    @lane.retry
    async def function(a, *, b=1):
        """Words."""
        await asyncio.sleep(0)
        return scripted(), a, b

    assert inspect.iscoroutinefunction(function) and function.__doc__ == "Words."
    assert asyncio.run(function(1, b=2)) == ("value", 1, 2)
    assert scripted.calls == 3

    @lane.retry
    async def hopeless():
        raise urllib.error.HTTPError("u", 404, "m", {}, None)

    with pytest.raises(CallError) as caught:
        asyncio.run(hopeless())
    assert caught.value.outcome == "permanent_404"
    assert lane.snapshot()["in_flight"] == 0


def test_cancelling_gives_the_permit_back():
    lane = Lane("https://cancelled.example", policy=FAST)

    @lane.retry
    async def slow():
        await asyncio.sleep(60)

    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(slow(), 0.05)

    asyncio.run(main())
    assert lane.snapshot()["in_flight"] == 0


def test_generators_are_refused():
    def generator():
        yield 1

    async def async_generator():
        yield 1

    lane = Lane("https://generators.example")
    for function in (generator, async_generator):
        for decorate in (tidegate.retry, tidegate.retry(FAST), lane.retry, lane.retry(repeatable=False)):
            with pytest.raises(ValidationError, match="is a generator"):
                decorate(function)


def test_methods_and_bare_decorators():
    class Client:
        calls = 0

        @tidegate.retry
        def get(self, name):
            self.calls += 1
            return name

    client = Client()
    assert (client.get("a"), client.calls, Client.get.__name__) == ("a", 1, "get")


@pytest.mark.parametrize(
    ("package", "name", "code"),
    [
        ("requests", "ConnectTimeout", "TIMEOUT"),
        ("requests", "ConnectionError", "CONNECTION_RESET"),
        ("requests", "ChunkedEncodingError", "TRUNCATED_BODY"),
        ("urllib3", "NewConnectionError", "CONNECTION_REFUSED"),
        ("urllib3", "IncompleteRead", "TRUNCATED_BODY"),
        ("httpx", "TimeoutException", "TIMEOUT"),
        ("httpx2", "TimeoutException", "TIMEOUT"),
        ("httpx", "NetworkError", "CONNECTION_RESET"),
        ("aiohttp", "ServerDisconnectedError", "CONNECTION_RESET"),
        ("botocore", "EndpointConnectionError", "CONNECTION_REFUSED"),
        ("botocore", "ReadTimeoutError", "TIMEOUT"),
        ("rasterio", "RasterioIOError", "UNKNOWN"),
        ("geopy", "GeocoderTimedOut", "TIMEOUT"),
        ("geopy", "GeocoderRateLimited", "RATE_LIMITED"),
    ],
)
def test_exceptions_of_clients_are_known_by_name(package, name, code):
    error, calls = run(*[exception(package, name)] * 4, policy={**FAST, "throttles_free": 0})
    assert (error.code, calls) == (code, 4)


@pytest.mark.parametrize(("package", "name"), [("urllib3", "NameResolutionError"), ("aiohttp", "ClientConnectorDNSError")])
def test_a_name_that_does_not_resolve_is_tried_again_slowly(package, name):
    error, calls = run(exception(package, name), patience="1s")
    assert (type(error), error.code, calls) == (CallError, "DNS_FAILURE", 1)
    assert error.not_before is not None


def test_statuses_inside_exceptions():
    for error, outcome in [
        (exception("requests", "HTTPError", response=Answer(404)), "permanent_404"),
        (exception("httpx", "HTTPStatusError", response=Answer(422)), "permanent_422"),
        (exception("aiohttp", "ClientResponseError", status=401, headers={}), "permanent_401"),
        (
            exception("botocore", "ClientError", response={"ResponseMetadata": {"HTTPStatusCode": 403}, "Error": {}}),
            "permanent_403",
        ),
    ]:
        got, calls = run(error)
        assert (got.outcome, calls) == (outcome, 1)
    slow_down = {"ResponseMetadata": {"HTTPStatusCode": 503, "HTTPHeaders": {}}, "Error": {"Code": "SlowDown"}}
    errors = [exception("botocore", "ClientError", response=slow_down)] * 4
    assert run(*errors, policy={**FAST, "throttles_free": 0})[0].code == "RATE_LIMITED"
    gdal = exception("rasterio", "RasterioIOError")
    gdal.args = ("HTTP response code: 404",)
    assert run(gdal)[0].outcome == "permanent_404"
    missing = exception("rasterio", "RasterioIOError", OSError)
    missing.args = ("a.tif: No such file or directory",)
    with pytest.raises(OSError, match="No such file"):
        run(missing)


@pytest.mark.parametrize("name", ["requests", "httpx", "httpx2", "urllib3", "urllib.request"])
def test_the_real_clients_refused_by_a_port_nobody_listens_on(name):
    client = importlib.import_module(name)
    url = "http://127.0.0.1:9/"

    @tidegate.retry({**FAST, "max_attempts": 2})
    def call():
        match name:
            case "urllib3":
                return client.PoolManager(retries=False).request("GET", url)
            case "urllib.request":
                return client.urlopen(url, timeout=5)
            case _:
                return client.get(url, timeout=5)

    with pytest.raises(CallError) as caught:
        call()
    assert (caught.value.outcome, caught.value.attempts) == ("network_refused_exhausted", 2)


def test_aiohttp_refused():
    import aiohttp

    @tidegate.retry({**FAST, "max_attempts": 2})
    async def call():
        async with aiohttp.ClientSession() as session, session.get("http://127.0.0.1:9/") as response:
            return await response.read()

    with pytest.raises(CallError) as caught:
        asyncio.run(call())
    assert (caught.value.outcome, caught.value.attempts) == ("network_refused_exhausted", 2)


def test_botocore_refused(monkeypatch):
    import botocore.config
    import botocore.session

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    config = botocore.config.Config(retries={"max_attempts": 0})
    s3 = botocore.session.get_session().create_client(
        "s3", region_name="eu-west-1", endpoint_url="http://127.0.0.1:9", config=config
    )

    @tidegate.retry({**FAST, "max_attempts": 2})
    def call():
        return s3.list_buckets()

    with pytest.raises(CallError) as caught:
        call()
    assert (caught.value.outcome, caught.value.attempts) == ("network_refused_exhausted", 2)
