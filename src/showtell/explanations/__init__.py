"""Explanations of captions: probabilities, runners-up, attention and saliency; and what they say of a model."""

from showtell.captioners.photos import explain_photos
from showtell.captions import ExplainedCaption, ExplainedWord, Explanation, ModelExplanation, WordValues

__all__ = ["ExplainedCaption", "ExplainedWord", "Explanation", "ModelExplanation", "WordValues", "explain_photos"]
