"""The credentials of a provider, as a block."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from prefect.blocks.abstract import CredentialsBlock
from pydantic import Field, SecretStr


class ProviderCredentials(CredentialsBlock):
    """The API key of a provider, stored in Prefect.

    A manifest refers to it by ``file:${TIDEGATE_KEY_FILE}``; the tasks put the key into a file that
    only this user can read and that is removed when the task ends, so it is in no environment and no
    command line.
    """

    _block_type_name = "Tidegate provider credentials"
    _block_type_slug = "tidegate-provider-credentials"
    _description = "The API key of a geocoder, a WFS or another service that Tidegate calls."

    key: SecretStr = Field(description="The API key.")
    profile: str = Field(default="generic", description="The profile of the provider; see `tidegate profiles ls`.")
    url: str | None = Field(default=None, description="The URL of the service, if it is not that of the profile.")
    variable: str = Field(
        default="TIDEGATE_KEY_FILE", description="The variable of a manifest that gets the path of the key file."
    )

    def get_client(self, **options: object) -> dict[str, str | None]:
        """The profile and the URL, as arguments of ``tidegate.geocode``."""
        return {"profile": self.profile, "url": self.url}

    @contextmanager
    def key_file(self) -> Iterator[str]:
        """A file with the key, mode 0600, for the time of a ``with`` block."""
        handle, path = tempfile.mkstemp(prefix="tidegate-key-")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(self.key.get_secret_value())
            yield path
        finally:
            os.unlink(path)
