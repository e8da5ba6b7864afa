"""A Celery application with one tiny task, and its sender."""

import json
import os
import sys
import time

import redis
from celery import Celery

BROKER = os.environ.get("BROKER", "redis://127.0.0.1:6379/3")
app = Celery("bench", broker=BROKER)
app.conf.update(task_acks_late=True, task_ignore_result=True, worker_hijack_root_logger=False)
store = redis.Redis.from_url(BROKER)


@app.task(name="tiny")
def tiny(n):
    store.incr("bench:done")


if __name__ == "__main__":
    count = int(os.environ["COUNT"])
    if sys.argv[1] == "send":
        store.set("bench:done", 0)
        began = time.monotonic()
        with app.producer_pool.acquire(block=True) as producer:
            for n in range(count):
                tiny.apply_async((n,), producer=producer)
        print(json.dumps({"seconds": time.monotonic() - began}))
    else:
        end = time.monotonic() + 600
        while int(store.get("bench:done")) < count and time.monotonic() < end:
            time.sleep(0.02)
