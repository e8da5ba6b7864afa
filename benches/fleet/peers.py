"""Celery and BullMQ with tiny jobs, on the Redis of the bench. Installed by name under target/."""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def used(before=0.0):
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return now.ru_utime + now.ru_stime - before


def celery(port, count, target):
    venv = target / "fleet-venv"
    if not (venv / "done").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        subprocess.run([str(venv / "bin" / "pip"), "install", "-q", "celery==5.7.0", "redis<7", "packaging"], check=True)
        (venv / "done").touch()
    env = {**os.environ, "BROKER": f"redis://127.0.0.1:{port}/3", "COUNT": str(count)}
    python = str(venv / "bin" / "python")
    sent = json.loads(subprocess.run([python, "celery_tasks.py", "send"], cwd=HERE, env=env, check=True,
                                     capture_output=True, text=True).stdout)
    cpu, began = used(), time.monotonic()
    worker = subprocess.Popen([python, "-m", "celery", "-A", "celery_tasks", "worker", "-c", "2", "-l", "ERROR"],
                              cwd=HERE, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([python, "celery_tasks.py", "wait"], cwd=HERE, env=env, check=True)
    took = time.monotonic() - began
    worker.terminate()
    worker.wait()
    return {"peer": "Celery 5.7, 2 processes", "jobs": count, "enqueue/s": round(count / sent["seconds"]),
            "work/s": round(count / took), "cpu ms/job": round(1000 * used(cpu) / count, 3)}


def bullmq(port, count, target):
    folder = target / "fleet-node"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules" / "bullmq").exists():
        subprocess.run(["npm", "install", "--silent", "--prefix", str(folder), "bullmq@5"], check=True)
    (folder / "bullmq.mjs").write_text((HERE / "bullmq.mjs").read_text())
    env = {**os.environ, "PORT": str(port), "COUNT": str(count)}
    done = subprocess.run(["node", "bullmq.mjs"], cwd=folder, env=env, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    return {"peer": "BullMQ 5, 50 at once", "jobs": count, "enqueue/s": round(count / result["sent"]),
            "work/s": round(count / result["took"]), "cpu ms/job": round(1000 * result["cpu"] / count, 3)}


def all_of(port, count, target):
    return [celery(port, count, Path(target)), bullmq(port, count, Path(target))]
