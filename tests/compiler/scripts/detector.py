"""Detects objects in an image: letterbox, run, threshold, non-maximum suppression."""

import ast

import numpy as np
import onnxruntime


class Detector:
    def __init__(self, path, conf=0.55, iou=0.5):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            path, options, providers=onnxruntime.get_available_providers()
        )
        meta = self.session.get_modelmeta().custom_metadata_map
        self.names = ast.literal_eval(meta["names"])
        self.stride = int(meta.get("stride", 32))
        self.input = self.session.get_inputs()[0]
        self.conf, self.iou = conf, iou

    def size(self, image):
        height, width = self.input.shape[2:]
        if isinstance(height, int) and isinstance(width, int):
            return height, width
        return tuple(-(-d // self.stride) * self.stride for d in image.shape[:2])

    def letterbox(self, image):
        height, width = self.size(image)
        scale = min(height / image.shape[0], width / image.shape[1])
        rows = np.minimum((np.arange(int(image.shape[0] * scale)) / scale).astype(int), image.shape[0] - 1)
        cols = np.minimum((np.arange(int(image.shape[1] * scale)) / scale).astype(int), image.shape[1] - 1)
        canvas = np.full((height, width, 3), 114, np.uint8)
        canvas[: len(rows), : len(cols)] = image[rows][:, cols]
        return canvas, scale

    def __call__(self, image):
        canvas, scale = self.letterbox(image)
        blob = canvas[:, :, ::-1].transpose(2, 0, 1)[None].astype(np.float32) / 255.0
        output = self.session.run(None, {self.input.name: blob})[0]
        rows = np.squeeze(output).T
        scores = rows[:, 4:].max(1)
        kept = scores > self.conf
        rows, scores = rows[kept], scores[kept]
        classes = rows[:, 4:].argmax(1)
        centres, sizes = rows[:, :2], rows[:, 2:4]
        boxes = np.concatenate([centres - sizes / 2, centres + sizes / 2], 1) / scale
        chosen = self.nms(boxes, scores)
        return [(self.names[int(classes[i])], float(scores[i]), boxes[i].tolist()) for i in chosen]

    def nms(self, boxes, scores):
        order, chosen = scores.argsort()[::-1], []
        while order.size:
            best, rest = order[0], order[1:]
            chosen.append(best)
            low = np.maximum(boxes[best, :2], boxes[rest, :2])
            high = np.minimum(boxes[best, 2:], boxes[rest, 2:])
            inside = np.prod(np.clip(high - low, 0, None), 1)
            area = np.prod(boxes[:, 2:] - boxes[:, :2], 1)
            order = rest[inside / (area[best] + area[rest] - inside) < self.iou]
        return chosen


def main(path, images):
    detector = Detector(path)
    return [detector(image) for image in images]
