"""The settings of decoding as options of a verb, and the captioners that they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from showtell.cli.settings_options import SettingsOptions
from showtell.errors import notify

if TYPE_CHECKING:
    from showtell.captioners import Captioner
    from showtell.features.store import FeatureStore

_SETTINGS = "showtell.decoding_config:DecodingConfig"
_PANEL = "Decoding (default: the settings of the checkpoint)"
Decoding = Annotated[dict[str, Any], SettingsOptions(_SETTINGS, _PANEL, shows_defaults=False)]
DecodingOfOne = Annotated[  # one caption per image
    dict[str, Any], SettingsOptions(_SETTINGS, _PANEL, without=("num_return_sequences",), shows_defaults=False)
]


def open_captioner(checkpoint: str, dtype: str | None = None) -> Captioner:
    """A captioner by its name."""
    from showtell.captioners import Captioner

    return Captioner.from_pretrained(checkpoint, dtype=dtype)


def looks_at_photos(captioner: Captioner, title: str, store: FeatureStore | None) -> bool:
    """Whether a captioner cannot read the given store and uses the photos instead, of which a notice is printed."""
    if store is None or captioner.reads(store):
        return False
    notify(f"{title} does not read the features in {store.path}; it looks at the photos.")
    return True


def short_names(checkpoints: Sequence[str]) -> list[str]:
    """Titles of checkpoints: of runs/soft/best "soft", of owner/git "git"; the names as given if two are equal."""
    # of a name on the hub, its revision, which may have slashes, is no part of a path
    paths = [Path(name).absolute() if Path(name).exists() else Path(name.partition("@")[0]) for name in checkpoints]
    titles = [path.parent.name if path.name in ("best", "last") else path.name for path in paths]
    return unique_titles(titles if len(set(titles)) == len(set(checkpoints)) else checkpoints)


def unique_titles(titles: Sequence[str]) -> list[str]:
    """The titles with a number behind those that occur more than once: "sat (1)", "nic", "sat (3)"."""
    counts = Counter(titles)
    return [title if counts[title] == 1 else f"{title} ({number})" for number, title in enumerate(titles, start=1)]
