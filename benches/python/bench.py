"""Processor time per call of the Python package and of its peers, printed as a table.

Calls go to `tidegate chaos` on loopback without a throttle. The processor time is that of this process with all
its threads, divided by the number of calls; the median of several runs, and the best, because others use the
machine too.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import signal
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable

TOGETHER = 64


def measured(runs: int, calls: int, work: Callable[[int], object]) -> tuple[float, float]:
    """Microseconds of processor time per call: the median and the best of the runs."""
    work(max(1, calls // 20))
    times = []
    for _ in range(runs):
        began = time.process_time()
        work(calls)
        times.append((time.process_time() - began) / calls * 1e6)
    return statistics.median(times), min(times)


class Server:
    """A `tidegate chaos` of the package."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "tidegate", "chaos", "--threads", "1", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()

    def stop(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.communicate()


def sync_clients(url: str):
    import geopy.geocoders
    import httpx
    import requests
    import stamina
    import tenacity
    from geopy.extra.rate_limiter import RateLimiter

    import tidegate
    from tidegate.adapters.httpx import LaneTransport
    from tidegate.adapters.requests import LaneAdapter

    lane = tidegate.Lane(url)

    def loop(one):
        def work(calls):
            for n in range(calls):
                one(f"{url}/geocode?q={n}")

        return work

    plain = requests.Session()
    session = requests.Session()
    session.mount("http://", LaneAdapter(lane))
    retrying = tenacity.retry(stop=tenacity.stop_after_attempt(5), wait=tenacity.wait_exponential_jitter(1))
    client = httpx.Client()
    laned = httpx.Client(transport=LaneTransport(lane))
    nominatim = geopy.geocoders.Nominatim(
        domain=f"{url.removeprefix('http://')}/nominatim", scheme="http", user_agent="bench"
    )
    limited = RateLimiter(plain.get, min_delay_seconds=0)

    def geocode(calls):
        for n in range(calls):
            nominatim.geocode(str(n))

    yield "sync", "tidegate get", loop(lane.get)
    yield "sync", "requests", loop(plain.get)
    yield "sync", "requests + tenacity", loop(retrying(plain.get))
    yield "sync", "requests + geopy RateLimiter", loop(limited)
    yield "sync", "httpx", loop(client.get)
    yield "sync", "httpx + stamina", loop(stamina.retry(on=httpx.HTTPError, attempts=5)(client.get))
    yield "sync", "geopy Nominatim", geocode
    yield "adapter", "requests + LaneAdapter", loop(session.get)
    yield "adapter", "httpx + LaneTransport", loop(laned.get)
    yield "batch", "tidegate map", lambda calls: all(r.ok for r in lane.map(f"/geocode?q={n}" for n in range(calls)))


def async_clients(url: str):
    import aiohttp
    import httpx
    import stamina

    import tidegate
    from tidegate.adapters.httpx import AsyncLaneTransport

    lane = tidegate.Lane(url)

    def together(make, close=None):
        def work(calls):
            async def main():
                client = make()
                count = iter(range(calls))

                async def worker():
                    for n in count:
                        await client(f"{url}/geocode?q={n}")

                await asyncio.gather(*(worker() for _ in range(TOGETHER)))
                if close is not None:
                    await close()

            asyncio.run(main())

        return work

    state = {}

    def with_httpx(decorate, **options):
        def make():
            state["client"] = httpx.AsyncClient(limits=httpx.Limits(max_connections=TOGETHER), **options)
            return decorate(state["client"].get)

        return together(make, lambda: state["client"].aclose())

    def with_aiohttp():
        def make():
            state["client"] = aiohttp.ClientSession()

            async def get(url):
                async with state["client"].get(url) as response:
                    return await response.read()

            return get

        return together(make, lambda: state["client"].close())

    yield f"async at {TOGETHER}", "tidegate get_async", together(lambda: lane.get_async)
    yield f"async at {TOGETHER}", "aiohttp", with_aiohttp()
    yield f"async at {TOGETHER}", "httpx", with_httpx(lambda get: get)
    yield f"async at {TOGETHER}", "httpx + stamina", with_httpx(stamina.retry(on=httpx.HTTPError, attempts=5))

    def laned(calls):
        limits = httpx.Limits(max_connections=TOGETHER)
        transport = AsyncLaneTransport(lane, transport=httpx.AsyncHTTPTransport(limits=limits))
        return with_httpx(lambda get: get, transport=transport)(calls)

    yield f"async at {TOGETHER}", "httpx + AsyncLaneTransport", laned


def adapters():
    """Adapters over transports that answer at once, and these alone: the difference is what an adapter costs.

    The rest of a client varies by more than that.
    """
    from unittest import mock

    import httpx
    import requests
    import urllib3

    import tidegate
    from tidegate.adapters.httpx import AsyncLaneTransport, LaneTransport
    from tidegate.adapters.requests import LaneAdapter

    url = "http://adapted.example"
    lane = tidegate.Lane(url)
    headers = {"content-type": "application/json", "date": "Wed, 18 Nov 2026 10:00:00 GMT", "content-length": "2"}

    sent = requests.Request("GET", f"{url}/geocode?q=1").prepare()
    response = requests.Response()
    response.status_code, response.url, response.request = 200, sent.url, sent
    response.raw = urllib3.HTTPResponse(io.BytesIO(b"{}"), headers=headers, status=200, preload_content=False)
    asked = httpx.Request("GET", f"{url}/geocode?q=1")
    answer = httpx.Response(200, headers=headers, content=b"{}")
    still = httpx.MockTransport(lambda request: answer)

    def with_requests(adapter):
        def work(calls):
            with mock.patch("requests.adapters.HTTPAdapter.send", lambda *_, **__: response):
                for _ in range(calls):
                    adapter.send(sent)

        return work

    def with_httpx(transport):
        def work(calls):
            for _ in range(calls):
                transport.handle_request(asked)

        return work

    def with_httpx_async(transport):
        def work(calls):
            async def main():
                for _ in range(calls):
                    await transport.handle_async_request(asked)

            asyncio.run(main())

        return work

    kind = "adapter, alone"
    yield kind, "requests' HTTPAdapter", with_requests(requests.adapters.HTTPAdapter())
    yield kind, "LaneAdapter", with_requests(LaneAdapter(lane))
    yield kind, "httpx's transport", with_httpx(still)
    yield kind, "LaneTransport", with_httpx(LaneTransport(lane, transport=still))
    yield kind, "httpx's async transport", with_httpx_async(still)
    yield kind, "AsyncLaneTransport", with_httpx_async(AsyncLaneTransport(lane, transport=still))


def decorators():
    import stamina
    import tenacity
    from geopy.extra.rate_limiter import RateLimiter

    import tidegate

    lane = tidegate.Lane("https://decorated.example")

    def nothing():
        return None

    async def nothing_async():
        return None

    def loop(function):
        def work(calls):
            for _ in range(calls):
                function()

        return work

    def loop_async(function):
        def work(calls):
            async def main():
                for _ in range(calls):
                    await function()

            asyncio.run(main())

        return work

    def permits(calls):
        for _ in range(calls):
            lane.admit().settle(status=200)

    yield "decorator", "tidegate lane.retry", loop(lane.retry(nothing))
    yield "decorator", "tidegate.retry", loop(tidegate.retry(nothing))
    yield "decorator", "tenacity", loop(tenacity.retry(stop=tenacity.stop_after_attempt(5))(nothing))
    yield "decorator", "stamina", loop(stamina.retry(on=OSError)(nothing))
    yield "decorator", "geopy RateLimiter", loop(RateLimiter(nothing, min_delay_seconds=0))
    yield "decorator, async", "tidegate lane.retry", loop_async(lane.retry(nothing_async))
    yield "decorator, async", "stamina", loop_async(stamina.retry(on=OSError)(nothing_async))
    yield "permit", "tidegate admit and settle", permits


def import_time() -> tuple[float, float]:
    """Milliseconds of `import tidegate` and of its first lane, by the clock: medians of new interpreters."""
    code = "import time; a = time.perf_counter(); import tidegate; b = time.perf_counter(); tidegate.Lane; print((b - a) * 1e3, (time.perf_counter() - a) * 1e3)"

    def once() -> list[float]:
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
        return [float(word) for word in done.stdout.split()]

    bare, first = zip(*(once() for _ in range(11)), strict=True)
    return statistics.median(bare), statistics.median(first)


WAITS = {
    "get": "lane.get('/geocode?q=a')",
    "get_async": "asyncio.run(wait())",
    "geocode": "tidegate.geocode([{'a': 'x'}], 'a', url=sys.argv[1])",
    "raster.info": "tidegate.raster.info(sys.argv[1] + '/raster/a.tif')",
}


def ctrl_c(how: str, runs: int = 7) -> tuple[float, float]:
    """Milliseconds from SIGINT to KeyboardInterrupt in a call that hangs: the median and the longest."""
    code = f"""
import asyncio, os, sys, tempfile, time
os.chdir(tempfile.mkdtemp())
import tidegate
lane = tidegate.Lane(sys.argv[1])
async def wait():
    await lane.get_async('/geocode?q=a')
try:
    {WAITS[how]}
except KeyboardInterrupt:
    print(time.monotonic(), flush=True)
os._exit(0)
"""
    delays = []
    for run in range(runs):
        server = Server("--hang", "100%", "--hang-for", "1h")
        child = subprocess.Popen([sys.executable, "-c", code, server.url], stdout=subprocess.PIPE, text=True)
        while requests_of(server.url)["requests"] == 0:
            time.sleep(0.02)
        # At another place of the slice in which a wait does not look for signals.
        time.sleep(0.1 + run * 0.013)
        sent = time.monotonic()
        os.kill(child.pid, signal.SIGINT)
        said = child.communicate()[0]
        delays.append((float(said) - sent) * 1000)
        server.stop()
    return statistics.median(delays), max(delays)


def requests_of(url: str) -> dict[str, float]:
    """The books of a provider."""
    with urllib.request.urlopen(f"{url}/__stats") as response:
        books: dict[str, float] = json.load(response)
    return books


def throttled() -> tuple[float, dict[str, float]]:
    """500 rows through a bucket of 50 per second with a burst of 10, without hints."""
    import tidegate

    server = Server("--throttle", "bucket:50/s,burst=10")
    lane = tidegate.Lane(server.url)
    began = time.perf_counter()
    rows = sum(response.ok for response in lane.map(f"/geocode?q=row{n}" for n in range(500)))
    took = time.perf_counter() - began
    stats = requests_of(server.url)
    server.stop()
    return took, {"rows": rows, "calls": stats["requests"], "wasted": stats["wasted_percent"]}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=3000, help="calls per run")
    parser.add_argument("--runs", type=int, default=5, help="runs, of which the median counts")
    parser.add_argument("--only", default="", help="only rows with this word")
    given = parser.parse_args()
    server = Server()
    load = os.getloadavg()[0]
    print(f"{given.calls} calls, {given.runs} runs, load {load:.1f}; µs of processor time per call")
    print(f"{'kind':18} {'client':32} {'median':>8} {'best':>8}")
    groups = ((sync_clients(server.url), 1), (async_clients(server.url), 1), (adapters(), 10), (decorators(), 10))
    for rows, factor in groups:
        for kind, name, work in rows:
            if given.only in f"{kind} {name}":
                median, best = measured(given.runs, given.calls * factor, work)
                print(f"{kind:18} {name:32} {median:8.1f} {best:8.1f}", flush=True)
    server.stop()
    if not given.only:
        for how in WAITS:
            median, most = ctrl_c(how)
            print(f"Ctrl-C in {how}: {median:.0f} ms, at most {most:.0f} ms", flush=True)
        bare, first = import_time()
        print(f"\nimport tidegate: {bare:.1f} ms; with its first lane: {first:.1f} ms")
        took, books = throttled()
        print(f"500 rows at 50/s, burst 10 (ideal 9.8 s): {took:.2f} s, {books}")


main()
