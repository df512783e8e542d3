"""The settings of decoding as options of a verb, and the captioners that they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from showtell.cli.settings_options import SettingsOptions
from showtell.errors import UsageError, notify

if TYPE_CHECKING:
    from showtell.captioners import Captioner
    from showtell.decoding_config import DecodingConfig
    from showtell.features.store import FeatureStore


_SETTINGS = "showtell.decoding_config:DecodingConfig"
_PANEL = "Decoding (default: the settings of the checkpoint)"
Decoding = Annotated[dict[str, Any], SettingsOptions(_SETTINGS, _PANEL, shows_defaults=False)]
DecodingOfOne = Annotated[  # one caption per image
    dict[str, Any], SettingsOptions(_SETTINGS, _PANEL, without=("num_return_sequences",), shows_defaults=False)
]


def open_captioner(checkpoint: str, ensemble: Sequence[str] | None = None, dtype: str | None = None) -> Captioner:
    """A captioner, or the average of several checkpoints."""
    from showtell.captioners import Captioner

    if not ensemble:
        return Captioner.from_pretrained(checkpoint, dtype=dtype)
    if dtype is not None:
        raise UsageError("--ensemble averages checkpoints of showtell, which compute in fp32; leave --dtype out.")
    return Captioner.ensemble([checkpoint, *ensemble])


def looks_at_photos(captioner: Captioner, title: str, store: FeatureStore | None) -> bool:
    """Whether a captioner does not read a store that others read; then it looks at the photos, and that is said."""
    if store is None or captioner.reads(store):
        return False
    notify(f"{title} does not read the features in {store.path}; it looks at the photos.")
    return True


def settings_of(captioner: Captioner, given: Mapping[str, Any]) -> DecodingConfig:
    """A checkpoint's decoding settings with those that were given on the command line.

    A beam width given to a checkpoint that samples or decodes greedily selects beam search.

    Raises:
        UsageError: a value is out of range, or without effect.
    """
    return captioner.settings(**captioner.decoding.with_implied_search(given))


def short_names(checkpoints: Sequence[str]) -> list[str]:
    """Short names of checkpoints: as many last parts of their paths as distinguish them, without `best` of a run.

    >>> short_names(["runs/soft/best", "runs/hard/best"])
    ['soft', 'hard']
    >>> short_names(["runs/soft/0/best", "runs/hard/0/best"])
    ['soft/0', 'hard/0']
    >>> short_names(["runs/soft/best", "runs/soft/last"])
    ['soft/best', 'soft/last']
    >>> short_names(["owner/blip@refs/pr/7", "owner/git"])
    ['blip', 'git']
    >>> short_names(["runs/soft/best", "runs/soft/best"])
    ['soft (1)', 'soft (2)']
    """
    from showtell.explanations.explanation import unique_titles

    # of a name on the hub, its revision, which may have slashes, is no part of a path
    whole = [Path(name if Path(name).exists() else name.partition("@")[0]).parts for name in checkpoints]
    runs = [parts[:-1] if parts[-1:] in (("best",), ("last",)) and len(parts) > 1 else parts for parts in whole]
    distinct = len(set(whole))
    least, ends = (1, runs) if len(set(runs)) == distinct else (2, whole)
    tails = (["/".join(end[-parts:]) for end in ends] for parts in range(least, max(map(len, ends)) + 1))
    titles = next((tail for tail in tails if len(set(tail)) == distinct), list(checkpoints))
    return unique_titles(titles)
