"""A sensor for dead letters: a run for each batch of letters that were not there before."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any

import dagster as dg

from tidegate import errors
from tidegate._call import call, checked, options

#: The most letters of one run request. The rest is for the next tick.
LETTERS_MAX = 1000


def letters_sensor(
    store: str | os.PathLike[str] = ".tidegate/letters.db",
    *,
    name: str = "tidegate_letters",
    minimum_interval_seconds: int = 60,
    filters: dict[str, Any] | None = None,
    **target: Any,
) -> dg.SensorDefinition:
    """Ask for a run when letters appear in a store, for example of a job that repairs and replays them.

    The cursor holds the time of the newest letter and the letters of that second, so none is missed
    and none is told twice. The run has the tags ``tidegate/letters`` (how many), ``tidegate/codes`` and
    ``tidegate/store``.

    :param store: a file, or ``postgres://…``.
    :param filters: filters of ``tidegate dlq ls``: code, pipeline, stage, service, …
    :param target: what to run, as for ``SensorDefinition``: job, job_name, jobs, asset_selection.
    """
    place = os.fspath(store)

    @dg.sensor(name=name, minimum_interval_seconds=minimum_interval_seconds, **target)
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if "://" not in place and not os.path.exists(place):
            return dg.SkipReason(f"there is no store {place} yet: no record was rejected")
        cursor = json.loads(context.cursor) if context.cursor else {"since": None, "ids": []}
        try:
            letters = _new(place, cursor, filters or {})
        except errors.TryLater as later:
            return dg.SkipReason(f"the store {place} is not ready: {later}")
        if not letters:
            return dg.SkipReason(f"no new letters in {place}")
        newest = letters[-1]["last_seen"]
        ids = [letter["id"] for letter in letters if letter["last_seen"] == newest]
        if newest == cursor["since"]:
            ids += cursor["ids"]
        codes = Counter(str(letter.get("failure", {}).get("code", "UNKNOWN")) for letter in letters)
        request = dg.RunRequest(
            run_key=f"{place} {newest} {ids[0]}",
            tags={
                "tidegate/letters": str(len(letters)),
                "tidegate/codes": ", ".join(f"{code} {count}" for code, count in codes.most_common(10)),
                "tidegate/store": place,
            },
        )
        return dg.SensorResult(run_requests=[request], cursor=json.dumps({"since": newest, "ids": sorted(ids)}))

    return sensor


def _new(store: str, cursor: dict[str, Any], filters: dict[str, Any]) -> list[dict[str, Any]]:
    """The letters after the cursor, oldest first."""
    # As many as were told in that second are skipped.
    limit = LETTERS_MAX + len(cursor["ids"])
    given = options({"store": store, "since": cursor["since"], "limit": limit, "oldest": True, **filters})
    output = checked(call(["dlq", "ls", "--format=json", *given]))
    known = set(cursor["ids"])
    letters: list[dict[str, Any]] = [letter for letter in output.json() if letter["id"] not in known]
    return sorted(letters, key=lambda letter: (letter["last_seen"], letter["id"]))
