"""Embeds sentences: tokens, an encoder, mean pooling under the mask, unit length."""

import zlib

import numpy as np
import onnxruntime as ort


class Encoder:
    def __init__(self, data, words):
        self.session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
        self.names = {i.name for i in self.session.get_inputs()}
        self.words = words

    def tokenise(self, sentences):
        ids = [[1, *(3 + zlib.crc32(w.encode()) % (self.words - 3) for w in s.lower().split()), 2] for s in sentences]
        length = max(map(len, ids))
        table = np.zeros((len(ids), length), np.int64)
        mask = np.zeros_like(table)
        for row, line in enumerate(ids):
            table[row, : len(line)], mask[row, : len(line)] = line, 1
        feed = {"input_ids": table, "attention_mask": mask, "token_type_ids": np.zeros_like(table)}
        return {name: array for name, array in feed.items() if name in self.names}

    def encode(self, sentences):
        feed = self.tokenise(sentences)
        try:
            hidden = self.session.run(["last_hidden_state"], feed)[0]
        except ort.capi.onnxruntime_pybind11_state.InvalidArgument as error:
            raise SystemExit(f"the model can't take these sentences: {error}") from error
        return self.pool(hidden, feed["attention_mask"])

    def encode_bound(self, sentences):
        feed = self.tokenise(sentences)
        binding = self.session.io_binding()
        for name, array in feed.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        binding.bind_output("last_hidden_state", "cpu")
        self.session.run_with_iobinding(binding)
        return self.pool(binding.copy_outputs_to_cpu()[0], feed["attention_mask"])

    def pool(self, hidden, mask):
        weights = mask[:, :, None].astype(np.float32)
        mean = (hidden * weights).sum(1) / np.clip(weights.sum(1), 1e-9, None)
        return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def main(data, words, sentences):
    encoder = Encoder(data, words)
    vectors = encoder.encode(sentences)
    single = np.concatenate([encoder.encode_bound([s]) for s in sentences[:2]])
    return vectors, single, vectors @ vectors.T
