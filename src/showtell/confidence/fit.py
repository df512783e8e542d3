"""Which captions of a validation split are good, and the calibration that follows from it."""

from __future__ import annotations

from collections.abc import Mapping

from showtell.captions import Caption
from showtell.confidence.calibration import Calibration
from showtell.scores import ImageFacts, score


def calibrate(captions: Mapping[str, Caption], facts: Mapping[str, ImageFacts], good_cider: float = 1.0) -> Calibration:
    """Fit the chance that a caption is good.

    Args:
        captions: image id to its caption, of a validation split that the model was not trained on.
        facts: what is known of the same images. Where all were drawn, a good caption is one that is wholly true.
        good_cider: elsewhere a good caption has at least this CIDEr-D, of at most 10, with the document frequencies of
            the split.

    Raises:
        DataError: there are too few captions, they are all good or all bad, or an image has no reference.
    """
    known = {image: facts[image] for image in captions}
    is_drawn = all(image.scene is not None for image in known.values())
    name, least = ("truth", 1.0) if is_drawn else ("cider", good_cider)
    meaning = "every statement is true" if is_drawn else f"CIDEr-D of {good_cider:g} or more"
    report = score({image: caption.text for image, caption in captions.items()}, known, metrics=[name])
    is_good = [(report.per_image[image][name] or 0.0) >= least for image in captions]
    return Calibration.fit(list(captions.values()), is_good, meaning)
