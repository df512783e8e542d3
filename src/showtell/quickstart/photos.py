"""Three photos in the public domain, captioned by the captioner that comes with showtell, and a page of why."""

from __future__ import annotations

import filecmp
import shutil
from pathlib import Path
from typing import Any

from showtell.captioners import Captioner
from showtell.captions import state_confidence
from showtell.errors import UsageError, or_raise
from showtell.explanations import explain_photos
from showtell.hub import PHOTOS
from showtell.reports.base import refuse_foreign
from showtell.reports.explanation_page import write_page


def caption_photos(out: Path) -> dict[str, Any]:
    """Copy the photos into a folder, caption them, and write a page beside them; returns captions and the page."""
    out.mkdir(parents=True, exist_ok=True)
    photos, page = [out / photo.name for photo in PHOTOS], out / "why.html"
    refuse_foreign(page, "quickstart")
    for photo, own in zip(photos, PHOTOS, strict=True):
        if photo.exists() and not filecmp.cmp(photo, own, shallow=False):
            raise UsageError(f"{photo} is another photo, which quickstart would replace; choose another --out.")
        shutil.copy(own, photo)
    explanations = [or_raise(one) for _, one in explain_photos({"small": Captioner.from_pretrained("small")}, photos)]
    write_page(page, explanations)
    captions = [explanation.models[0].caption for explanation in explanations]
    examples = [
        {"image": str(photo), "caption": one.text, "confidence": state_confidence(one.confidence, one.doubt)}
        for photo, one in zip(photos, captions, strict=True)
    ]
    return {"examples": examples, "page": str(page)}
