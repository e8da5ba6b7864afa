"""What a manifest declares, without opening its source or sink."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from tidegate import errors
from tidegate._call import call, variable_words


def parts(manifest: str | os.PathLike[str], variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The name, steps, gates and dead letters of a manifest.

    :raises ValidationError: it is not valid.
    """
    output = call(["validate", "--parts", "--reveal", *variable_words(variables), "--", os.fspath(manifest)])
    if output.exit_code != 0:
        raise errors.ValidationError(output.reason())
    found: dict[str, Any] = json.loads(output.data)[0]
    return found


def word(text: str) -> str:
    """A name of an asset: letters, digits and ``_``."""
    return re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_") or "tidegate"
