"""A lane under ``httpx``."""

from __future__ import annotations

import httpx

from tidegate.adapters._httpx import transports

__all__ = ["AsyncLaneTransport", "LaneRefused", "LaneTransport"]

LaneTransport, AsyncLaneTransport, LaneRefused = transports(httpx)
