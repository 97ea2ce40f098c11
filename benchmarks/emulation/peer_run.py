"""A peer's run under the emulator, in a Python for 64-bit ARM: one run that warms up, one between two marks.

    python3 peer_run.py ENGINE MODEL FOLDER

FOLDER has inputs.json (name, dtype and shape of each input, names of the outputs) and in0.bin ...; out0.bin ... are
written there. Imports nothing of ours: this Python has the peers' packages and no others.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np


def onnxruntime(model, feeds, outputs):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    for name in outputs:
        binding.bind_output(name)
    return lambda: session.run_with_iobinding(binding), binding.copy_outputs_to_cpu


def mnn(model, feeds, outputs, precision="high"):
    import MNN

    kinds = {"float32": MNN.Halide_Type_Float, "int32": MNN.Halide_Type_Int}
    interpreter = MNN.Interpreter(model)
    settings = {"backend": "CPU", "numThread": 1, "precision": precision, "memory": "normal", "power": "normal"}
    session = interpreter.createSession(settings)
    plain = MNN.Tensor_DimensionType_Caffe
    for name, value in feeds.items():
        held = np.ascontiguousarray(value.astype(np.int32) if value.dtype == np.int64 else value)
        tensor = MNN.Tensor(held.shape, kinds[str(held.dtype)], held, plain)
        interpreter.getSessionInput(session, name).copyFrom(tensor)

    def results():
        found = []
        for name in outputs:
            tensor = interpreter.getSessionOutput(session, name)
            shape = tensor.getShape()
            host = MNN.Tensor(shape, MNN.Halide_Type_Float, np.zeros(shape, np.float32), plain)
            tensor.copyToHostTensor(host)
            found.append(np.array(host.getData(), np.float32).reshape(shape))
        return found

    return lambda: interpreter.runSession(session), results


def mnn_half(model, feeds, outputs):
    return mnn(model, feeds, outputs, "low")


def ncnn(model, feeds, outputs, half=False):
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = 1
    if not half:
        net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = False
        net.opt.use_bf16_storage = False
    if net.load_param(f"{model}.param") or net.load_model(f"{model}.bin"):
        raise RuntimeError("ncnn can't load what pnnx made of the model")
    mats = []
    for value in feeds.values():  # pnnx numbers them in their order
        held = np.ascontiguousarray(value.astype(np.int32) if value.dtype == np.int64 else value)
        mats.append(ncnn.Mat(held, batch_index=0).clone())
    found = list(outputs)

    def run():
        with net.create_extractor() as extractor:
            for i, mat in enumerate(mats):
                extractor.input(f"in{i}", mat)
            found[:] = [extractor.extract(f"out{i}") for i in range(len(outputs))]
        if any(code for code, _ in found):
            raise RuntimeError("ncnn stopped in the middle of the network")

    return run, lambda: [np.array(mat.numpy(), np.float32) for _, mat in found]


def ncnn_half(model, feeds, outputs):
    return ncnn(model, feeds, outputs, True)


ENGINES = {
    "onnxruntime": onnxruntime, "mnn": mnn, "mnn-float16": mnn_half, "ncnn": ncnn, "ncnn-float16": ncnn_half
}  # fmt: skip


def main():
    engine, model, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    spec = json.loads((folder / "inputs.json").read_text())
    feeds = {}
    for i, entry in enumerate(spec["inputs"]):
        data = np.fromfile(folder / f"in{i}.bin", entry["dtype"])
        feeds[entry["name"]] = data.reshape(entry["shape"])
    run, results = ENGINES[engine](model, feeds, spec["outputs"])
    run()
    os.getppid()
    run()
    os.getppid()
    for i, value in enumerate(results()):
        np.ascontiguousarray(value, np.float32).tofile(folder / f"out{i}.bin")


if __name__ == "__main__":
    main()
