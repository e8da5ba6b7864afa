"""The peers of Tidegate in Python: one of them doing one job over loopback.

peers.py CLIENT geocode|put URL ROWS WORKERS

Each is set up as its own documentation shows: ten attempts, exponential backoff with jitter,
Retry-After obeyed. The last line is the account: rows answered, refused for good, and lost.
"""

import asyncio
import itertools
import json
import sys
import threading

RETRY = {408, 429, 500, 502, 503, 504}
BODY = b"x" * 64


def target(job, row):
    if job["put"]:
        return f"{job['url']}/s3/bench/hot/{row}"
    return f"{job['url']}/geocode?q={row}+Harbour+Street"


def ended(status):
    if 200 <= status < 300:
        return "answered"
    return "refused" if 400 <= status < 408 else "lost"


def hint(error):
    response = getattr(error, "response", None)
    value = response.headers.get("retry-after") if response is not None else None
    return float(value) if value and value.isdigit() else None


async def with_httpx(job, tally, retrying):
    import httpx

    limits = httpx.Limits(max_connections=job["workers"], max_keepalive_connections=job["workers"])
    rows = iter(range(job["rows"]))

    async with httpx.AsyncClient(limits=limits, timeout=30, trust_env=False) as client:

        async def once(row):
            url = target(job, row)
            response = await (client.put(url, content=BODY) if job["put"] else client.get(url))
            if response.status_code in RETRY:
                response.raise_for_status()
            return response.status_code

        ask = retrying(once)

        async def worker():
            for row in rows:
                try:
                    tally[ended(await ask(row))] += 1
                except httpx.HTTPError:
                    tally["lost"] += 1

        await asyncio.gather(*(worker() for _ in range(job["workers"])))


def stamina_retry(once):
    import datetime

    import httpx
    import stamina

    def on(error):
        wait = hint(error)
        if wait is not None:
            return datetime.timedelta(seconds=wait)
        return isinstance(error, httpx.HTTPError)

    return stamina.retry(on=on)(once)


def tenacity_retry(once):
    import httpx
    import tenacity

    jitter = tenacity.wait_random_exponential(multiplier=0.1, max=10)

    def wait(state):
        return (hint(state.outcome.exception()) or 0) + jitter(state)

    return tenacity.retry(
        retry=tenacity.retry_if_exception_type(httpx.HTTPError),
        wait=wait,
        stop=tenacity.stop_after_attempt(10),
        reraise=True,
    )(once)


def with_urllib3(job, tally):
    import urllib3

    retry = urllib3.Retry(
        total=10,
        backoff_factor=0.1,
        backoff_max=10,
        backoff_jitter=0.1,
        status_forcelist=RETRY,
        allowed_methods={"GET", "PUT"},
    )
    pool = urllib3.PoolManager(maxsize=job["workers"], block=True, retries=retry, timeout=30)
    rows = itertools.count()
    lock = threading.Lock()

    def worker():
        while (row := next(rows)) < job["rows"]:
            try:
                if job["put"]:
                    response = pool.request("PUT", target(job, row), body=BODY)
                else:
                    response = pool.request("GET", target(job, row))
                outcome = ended(response.status)
            except urllib3.exceptions.HTTPError:
                outcome = "lost"
            with lock:
                tally[outcome] += 1

    threads = [threading.Thread(target=worker) for _ in range(job["workers"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    client, what, url, rows, workers = sys.argv[1:6]
    job = {"put": what == "put", "url": url, "rows": int(rows), "workers": int(workers)}
    tally = {"answered": 0, "refused": 0, "lost": 0}
    if client == "urllib3":
        with_urllib3(job, tally)
    else:
        retrying = {"stamina": stamina_retry, "tenacity": tenacity_retry}[client]
        asyncio.run(with_httpx(job, tally, retrying))
    print(json.dumps(tally))


main()
