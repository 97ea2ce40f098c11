"""The commands of ``halotile``, with and without the compiler."""

# Name -> module (from this folder), help line. A module is imported when its command runs, not to list it.
COMMANDS = {
    "build": (".build", "Compile a model into a native library."),
    "run": (".run", "Run a built library."),
    "stream": (".stream", "Compute an image of any height, row by row."),
    "verify": (".verify", "Compare with ONNX Runtime."),
    "inspect": (".inspect", "Show what is in a model, before or after a stage."),
    "report": (".report", "Write a page about a model: kernels, times, memory, tiles."),
    "tune": (".tune", "Measure a model's kernels on this machine, for later builds."),
    "targets": (".targets", "List, show and detect machines to compile for."),
    "doctor": (".doctor", "Check this installation."),
    "calibrate": ("...benchmarks.calibrate.cli", "Measure this machine, for a target of its own."),
    "bench": ("...benchmarks.cli", "Measure beside other engines."),
    "completion": (".completion", "Print what makes a shell complete commands, files, targets and nodes."),
}
