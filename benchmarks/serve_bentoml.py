"""A captioner behind BentoML, with the adaptive batching of its documentation, for `serve.py`.

CHECKPOINT=runs/mine/best MAX_BATCH=32 python -m bentoml serve serve_bentoml:Front
"""

import os
from pathlib import Path

from showtell.captioners import Captioner
from showtell.captions import caption_result

import bentoml


@bentoml.service(workers=1, traffic={"timeout": 60})
class Captions:
    def __init__(self) -> None:
        self.captioner = Captioner.from_pretrained(os.environ["CHECKPOINT"], device="cpu")

    @bentoml.api(batchable=True, max_batch_size=int(os.environ["MAX_BATCH"]), max_latency_ms=60_000)
    def caption(self, images: list[bytes]) -> list[dict]:
        return [caption_result("photo", one) for one in self.captioner.caption(images, batch_size=len(images))]


@bentoml.service(workers=1, traffic={"timeout": 60})
class Front:
    captions = bentoml.depends(Captions)

    @bentoml.api
    async def caption(self, image: Path) -> dict:
        (answer,) = await self.captions.to_async.caption([image.read_bytes()])
        return answer
