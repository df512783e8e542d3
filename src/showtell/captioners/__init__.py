"""Captioners: photos to captions, whatever model makes them."""

from showtell.captioners.contract import Abilities, About, Captioner, PhotoToCaption, Source
from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner, pixel_hash

__all__ = ["Abilities", "About", "Captioner", "EncoderDecoderCaptioner", "PhotoToCaption", "Source", "pixel_hash"]
