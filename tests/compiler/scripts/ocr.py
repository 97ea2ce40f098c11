"""Reads a page: one model finds lines of text, another reads each of them (CTC)."""

import numpy as np
from onnxruntime import InferenceSession, SessionOptions, get_device


class Engine:
    def __init__(self, path):
        options = SessionOptions()
        options.log_severity_level = 4
        options.enable_cpu_mem_arena = False
        assert get_device() == "CPU"
        providers = [("CPUExecutionProvider", {"arena_extend_strategy": "kSameAsRequested"})]
        self.session = InferenceSession(path, sess_options=options, providers=providers)
        self.name = self.session.get_inputs()[0].name

    def __call__(self, batch):
        return self.session.run([o.name for o in self.session.get_outputs()], {self.name: batch})[0]

    def characters(self):
        return ["", *self.session.get_modelmeta().custom_metadata_map["character"].splitlines(), " "]


def runs(flags):
    """(begin, end) of every run of true flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(int), [0]])))
    return list(zip(edges[::2], edges[1::2]))


def prepare(image):
    return ((image.astype(np.float32) / 255.0 - 0.5) / 0.5).transpose(2, 0, 1)


def find(engine, image):
    text = engine(prepare(image)[None])[0, 0] > 0.3
    boxes = []
    for top, bottom in runs(text.any(1)):
        columns = np.flatnonzero(text[top:bottom].any(0))
        boxes.append((top, bottom, columns[0], columns[-1] + 1))
    return boxes


def read(engine, image, box, height=16):
    top, bottom, left, right = box
    crop = image[top:bottom, left:right]
    width = max(8, round(crop.shape[1] * height / crop.shape[0] / 8) * 8)
    rows = np.arange(height) * crop.shape[0] // height
    cols = np.arange(width) * crop.shape[1] // width
    scores = engine(prepare(crop[rows][:, cols])[None])[0]
    best = scores.argmax(1)
    letters = engine.characters()
    kept = [i for i, c in enumerate(best) if c and (i == 0 or c != best[i - 1])]
    return "".join(letters[best[i]] for i in kept), float(scores.max(1).mean())


def main(detector, recogniser, image):
    find_text, read_text = Engine(detector), Engine(recogniser)
    return [(list(map(int, box)), *read(read_text, image, box)) for box in find(find_text, image)]
