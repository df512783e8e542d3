"""Environment variables that other packages read as they are imported, checked before that."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from showtell.errors import UsageError


def check_hub_endpoint() -> None:
    """Make sure that HF_ENDPOINT, where it is set, is an address: with some others timm cannot even be imported.

    Raises:
        UsageError: it is none.
    """
    endpoint = os.environ.get("HF_ENDPOINT")
    if not endpoint:
        return
    try:
        address = urlsplit(endpoint)
        is_valid = address.scheme in ("http", "https") and bool(address.hostname) and address.port != 0
    except ValueError:  # brackets or a port that are none
        is_valid = False
    if not is_valid or not endpoint.isprintable() or " " in endpoint:
        raise UsageError(
            f'HF_ENDPOINT is "{endpoint}", which is no address; set it to one such as https://huggingface.co, or unset '
            "it."
        )
