#!/usr/bin/env python3
"""Runs the commands for rasters over many strange files, and tells which cost too much.

    corpus.py TIDEGATE FILE_OR_DIRECTORY... [--cpu 2] [--memory 256] [--only cog] [--jobs 2] [--example]

Every TIFF of the directories goes through `info`, `validate --full`, `cog` and `repair`. A command may fail; it
must not panic, nor take more processor time or memory than allowed. A file that is larger than 1 MB packed may
take time by its size: it is listed apart, with its size. Exit code 1 if any command panics or passes a limit.
With --example, TIDEGATE is the built example `corpus` of the crate raster, which is faster to build. The autotests
of GDAL, image-tiff, Pillow, libtiff and rasterio hold a thousand such files.
"""

import argparse
import concurrent.futures
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

COMMANDS = {
    "info": ["info", "{in}"],
    "validate": ["validate", "{in}", "--full", "--any"],
    "cog": ["cog", "{in}", "{out}", "--threads", "1"],
    "repair": ["repair", "{in}", "{out}", "--partial", "--unplaced"],
}
LARGE = 1 << 20
SECONDS_MAX = 60


def run(program, name, file, is_example):
    """How one command ended: exit code, processor seconds, peak memory in MB, and what it said."""
    with tempfile.TemporaryDirectory(prefix="corpus-") as folder:
        words = [word.replace("{in}", str(file)).replace("{out}", f"{folder}/out.tif") for word in COMMANDS[name]]
        words = [name, str(file)] if is_example else ["raster", *words]
        said = Path(folder, "said")
        with said.open("wb") as errors:
            limit = lambda: resource.setrlimit(resource.RLIMIT_CPU, (SECONDS_MAX, SECONDS_MAX))
            process = subprocess.Popen([program, *words], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=errors, preexec_fn=limit)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        text = said.read_text(errors="replace")
    return name, file, process.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, text


def tiffs(places):
    for place in map(Path, places):
        if place.is_file():
            yield place
        else:
            yield from sorted(file for file in place.rglob("*")
                              if file.is_file() and file.suffix.lower() in (".tif", ".tiff", ".btf", ".gz"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("places", nargs="+")
    parser.add_argument("--cpu", type=float, default=2.0, help="processor seconds of a command")
    parser.add_argument("--memory", type=float, default=256.0, help="MB of a command")
    parser.add_argument("--only", choices=COMMANDS, action="append", help="a command; can be repeated")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--example", action="store_true", help="the program is the example of the crate")
    args = parser.parse_args()
    files, began = list(tiffs(args.places)), time.monotonic()
    todo = [(args.program, name, file, args.example) for file in files for name in args.only or COMMANDS]
    ends, most, faults, large = Counter(), {}, [], []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, file, code, cpu, memory, text in pool.map(lambda one: run(*one), todo):
            ends[name, code] += 1
            for what, value in [("cpu", cpu), ("memory", memory)]:
                most[name, what] = max(most.get((name, what), (0, "")), (value, file.name))
            line = f"{name} {file.name}: exit {code}, {cpu:.2f} s, {memory:.0f} MB, {file.stat().st_size} bytes"
            if code < 0 or code == 101 or "panicked" in text or "internal error" in text:
                faults.append(f"{line}: {text[-300:]}")
            elif cpu > args.cpu or memory > args.memory:
                (large if file.stat().st_size > LARGE else faults).append(line)
    for name in args.only or COMMANDS:
        codes = ", ".join(f"exit {code}: {count}" for (of, code), count in sorted(ends.items()) if of == name)
        (cpu, slow), (memory, fat) = most.get((name, "cpu"), (0, "")), most.get((name, "memory"), (0, ""))
        print(f"{name:8} {codes}; at most {cpu:.2f} s ({slow}), {memory:.0f} MB ({fat})")
    print(*(f"large: {line}" for line in large), *(f"FAULT: {line}" for line in faults), sep="\n")
    print(f"{len(files)} files, {len(todo)} commands, {time.monotonic() - began:.0f} s, {len(faults)} faults, load "
          + " ".join(f"{load:.1f}" for load in os.getloadavg()))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
