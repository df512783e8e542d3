"""A captioner behind LitServe, with the batching of its documentation, for `serve.py`; run by a python that has it.

CHECKPOINT=runs/mine/best MAX_BATCH=32 python serve_litserve.py PORT
"""

import os
import sys

from showtell.captioners import Captioner
from showtell.captions import caption_result

import litserve


class CaptionApi(litserve.LitAPI):
    def setup(self, device):
        self.captioner = Captioner.from_pretrained(os.environ["CHECKPOINT"], device=device)

    def decode_request(self, request):
        return request["request"].file.read()

    def batch(self, inputs):
        return inputs

    def predict(self, photos):
        return self.captioner.caption(photos, batch_size=len(photos))

    def unbatch(self, output):
        return output

    def encode_response(self, output):
        return caption_result("photo", output)


if __name__ == "__main__":
    api = CaptionApi(max_batch_size=int(os.environ["MAX_BATCH"]), batch_timeout=0.005)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(port=int(sys.argv[1]), host="127.0.0.1", num_api_servers=1, log_level="error")
