"""Explanations of captions: probabilities, runners-up, attention and occlusion."""

from __future__ import annotations

from showtell.captions import ExplainedCaption, ExplainedWord, ModelExplanation, WordValues
from showtell.explanations.explanation import Explanation, explain_photos

__all__ = ["ExplainedCaption", "ExplainedWord", "Explanation", "ModelExplanation", "WordValues", "explain_photos"]
