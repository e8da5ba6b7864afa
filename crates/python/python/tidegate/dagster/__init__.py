"""Tidegate in Dagster: assets of manifests, gates as asset checks, dead letters as a sensor.

Every run is a process of its own that speaks Dagster Pipes: its log, its gates and its result arrive
as log entries, asset checks and metadata. Needs ``pip install tidegate[dagster]``.
"""

from __future__ import annotations

from tidegate.dagster._assets import check_specs, tidegate_assets
from tidegate.dagster._client import PipesTidegateClient
from tidegate.dagster._component import TidegateComponent
from tidegate.dagster._resource import TidegateResource
from tidegate.dagster._sensor import letters_sensor

__all__ = [
    "PipesTidegateClient",
    "TidegateComponent",
    "TidegateResource",
    "check_specs",
    "letters_sensor",
    "tidegate_assets",
]
