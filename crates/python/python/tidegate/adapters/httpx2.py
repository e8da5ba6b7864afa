"""A lane under ``httpx2``."""

from __future__ import annotations

import httpx2

from tidegate.adapters._httpx import transports

__all__ = ["AsyncLaneTransport", "LaneRefused", "LaneTransport"]

LaneTransport, AsyncLaneTransport, LaneRefused = transports(httpx2)
