"""Imported models give what their projects' own code gives: log-probabilities to 1e-5, and the same greedy captions.

The numbers are of benchmarks/published_parity.py, which ran ImageCaptioning.pytorch at 4c48a33 and
a-PyTorch-Tutorial-to-Image-Captioning at cc9c7e2 in double precision (torch 2.15, 2026-11-22).
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from published_parity import CAPTIONS, FEATURE_SIZE, LUO, REGIONS, SGRVINOD, batch, cells, luo_inputs
from showtell.captioners import Captioner
from showtell.importing import import_checkpoint
from showtell.types import Features, Regions
from tests.importing.makers import reference, write_luo, write_tutorial


def opened(source: Path, folder: Path) -> Any:
    """The captioner that an import leaves on disk."""
    import_checkpoint(source).save(folder)
    return Captioner.from_pretrained(folder, device="cpu")


def assert_equal(captioner: Any, features: Features, logprobs: list[list[list[float]]], greedy: list[str]) -> None:
    """Hold the captions of a batch against those of the source."""
    given = captioner.logprobs_features(features, [list(CAPTIONS)] * len(greedy))
    captions = captioner.caption_features(features, captioner.settings(search="greedy"))
    for image in range(len(greedy)):
        for text, expected in zip(given[image], logprobs[image], strict=True):
            assert [*(word.logprob for word in text.words), text.end] == pytest.approx(expected, abs=1e-5), text
        assert captions[image][0].text == greedy[image].replace("UNK", "<unknown>").replace("<unk>", "<unknown>")


@pytest.mark.parametrize("case", LUO)
def test_image_captioning_pytorch(tmp_path: Path, case: str):
    captioner = opened(write_luo(tmp_path, case), tmp_path / "out")
    expected, options, seen = reference("luo")[case], LUO[case], 0
    for regions in REGIONS:
        features, there, boxes = batch(case, regions)
        fc, att = luo_inputs(options, features, there, boxes)
        vectors, is_region = features, there
        if options["caption_model"] in ("newfc", "fc"):
            vectors, is_region = fc[:, None], np.ones((len(fc), 1), dtype=bool)
        elif options.get("use_box"):  # as they are where another program appended them
            vectors = np.concatenate([features, att[..., FEATURE_SIZE:]], -1)
        one = Features(torch.from_numpy(vectors).float(), torch.from_numpy(is_region))
        end = seen + len(regions)
        assert_equal(captioner, one, expected["logprobs"][seen:end], expected["greedy"][seen:end])
        seen = end


@pytest.mark.parametrize("case", [case for case, options in LUO.items() if options.get("use_box")])
def test_numbers_of_boxes_are_made_of_the_boxes(tmp_path: Path, case: str):
    captioner = opened(write_luo(tmp_path, case), tmp_path / "out")
    expected, count = reference("luo")[case], len(REGIONS[0])
    features, there, boxes = batch(case, REGIONS[0])
    regions = Regions(torch.from_numpy(boxes).float(), windows=torch.tensor([[0.0, 0.0, 80.0, 60.0]] * count))
    one = Features(torch.from_numpy(features).float(), torch.from_numpy(there), regions)
    assert_equal(captioner, one, expected["logprobs"][:count], expected["greedy"][:count])


@pytest.mark.parametrize("case", SGRVINOD)
def test_the_tutorial(tmp_path: Path, case: str):
    captioner = opened(write_tutorial(tmp_path, case), tmp_path / "out")
    expected = reference("sgrvinod")[case]
    vectors = torch.from_numpy(cells(case, SGRVINOD[case]["cells"])).float().flatten(1, 2)
    features = Features(vectors, torch.ones(vectors.shape[:2], dtype=torch.bool))
    captioner.decoding = captioner.settings(num_beams=1, max_length=12)
    assert_equal(captioner, features, expected["logprobs"], expected["greedy"])
