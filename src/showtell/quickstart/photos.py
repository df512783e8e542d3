"""Three photos in the public domain, captioned by the captioner that comes with showtell, and a page of why."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from showtell.captioners import Captioner
from showtell.captions import state_confidence
from showtell.errors import or_raise
from showtell.explanations import explain_photos
from showtell.hub import PHOTOS
from showtell.reports.explanation_page import write_page


def caption_photos(out: Path) -> dict[str, Any]:
    """Copy the photos into a folder, caption them, and write a page beside them; returns captions and the page."""
    out.mkdir(parents=True, exist_ok=True)
    photos = [Path(shutil.copy(photo, out)) for photo in PHOTOS]
    captioners = {"small": Captioner.from_pretrained("small")}
    explanations = [or_raise(explanation) for _, explanation in explain_photos(captioners, photos)]
    page = out / "why.html"
    write_page(page, explanations)
    captions = [explanation.models[0].caption for explanation in explanations]
    doubts = [state_confidence(caption.confidence, caption.doubt) for caption in captions]
    examples = [
        {"image": str(photo), "caption": caption.text, "confidence": doubt}
        for photo, caption, doubt in zip(photos, captions, doubts, strict=True)
    ]
    return {"examples": examples, "page": str(page)}
