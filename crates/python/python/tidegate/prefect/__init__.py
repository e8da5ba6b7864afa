"""Tidegate in Prefect: tasks with the lane inside, and waits that Prefect schedules.

The tasks have ``retries=0``: what can be retried is retried by the lane, record by record. A service
that is down or asks for a longer wait becomes ``AwaitingRetry`` at the time that it asked for.
Needs ``pip install tidegate[prefect]``.
"""

from __future__ import annotations

from tidegate.prefect._blocks import ProviderCredentials
from tidegate.prefect._tasks import fetch, geocode, replay, run_manifest
from tidegate.prefect._wait import awaiting

__all__ = ["ProviderCredentials", "awaiting", "fetch", "geocode", "replay", "run_manifest"]
