"""Board files of the user's own: what they may say, what they are refused for, and a library for one."""

from __future__ import annotations

from pathlib import Path

import pytest
from board_tools import halotile, network
from halotile.errors import TargetError
from halotile.targets.resolve import precheck, resolve

BOARD = """[target]
triple = "aarch64-linux-gnu"
cpu = "cortex-a55"
l2_bytes = "128K"
bandwidth = "8500M"
glibc = "2.31"
"""


def _file(folder: Path, text: str) -> str:
    path = folder / "my-board.toml"
    path.write_text(text)
    return str(path)


def test_a_file_is_a_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _file(tmp_path, BOARD)
    target = resolve(path)
    assert (target.id, target.cpu, target.l2_bytes) == ("my-board", "cortex-a55", 128 << 10)
    assert target.bandwidth == 8_500_000_000 and target.source == path
    monkeypatch.chdir(tmp_path)
    precheck("./my-board.toml")
    assert resolve("./my-board.toml") == target == resolve("my-board.toml")
    more = resolve("./my-board.toml+dotprod,-aes")
    assert more.features == ("+dotprod", "-aes") and more.l2_bytes == target.l2_bytes


def test_every_board_of_ours_is_read_as_a_file() -> None:
    import halotile.targets.boards as boards

    for name, board in boards.boards().items():
        path = Path(boards.__file__).parent / "boards" / f"{name}.toml"
        assert resolve(str(path)) == board.target


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("target = 3", "my-board.toml: target: expected `?object"),
        ("[target\n", "my-board.toml can't be read: .*line 1"),
        (BOARD.replace('cpu = "cortex-a55"', ""), "my-board.toml lacks target.cpu"),
        ("", "my-board.toml lacks target"),
        (f"cores = 4\n{BOARD}", r"'cores' belongs under \[target\]"),
        (f"colour = 4\n{BOARD}", r"'colour' is unknown \(known: description, target"),
        (f"{BOARD}l4_bytes = 3\n", "unknown fact 'l4_bytes' of a target .known: bandwidth, clusters"),
        (f"{BOARD}cores = 0\n", "target.cores: 0 is not from 1 to 1024"),
        (f'{BOARD}cores = "four"\n', "target.cores: expected `?int"),
        (f"{BOARD}vector_bits = 96\n", "target.vector_bits: 96 is none of 64, 128, 256, 512"),
        (f'{BOARD}l1_bytes = "32Q"\n', "target.l1_bytes: '32Q' is no whole number, alone or with K, M or G"),
        (BOARD.replace("8500M", "8500K"), "target.bandwidth: '8500K' is no whole number, alone or with M or G"),
        (BOARD.replace("2.31", "new"), "target.glibc: 'new' is not written so: two numbers, such as 2.31"),
        (f'{BOARD}features = ["dotprod"]\n', r"target.features: .* is not written so: \+name or -name"),
        (f'{BOARD}features = ["+dotprdo"]\n', "my-board.toml: unknown feature 'dotprdo'.*did you mean dotprod"),
        (BOARD.replace("cortex-a55", "cortex-a5x"), "my-board.toml: unknown CPU 'cortex-a5x'.*did you mean"),
        (BOARD.replace("linux-gnu", "beos"), "my-board.toml: target triple 'aarch64-beos' is not one"),
    ],
)
def test_what_is_wrong_in_a_file_is_one_line_with_its_name(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=message) as caught:
        resolve(_file(tmp_path, text))
    assert "my-board.toml" in str(caught.value) and "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    for ask in (precheck, resolve):
        with pytest.raises(TargetError, match="no-board.toml can't be read: No such file"):
            ask(f"{tmp_path}/no-board.toml")


def test_the_command_line_takes_a_file(tmp_path: Path) -> None:
    own = BOARD.replace("aarch64-linux-gnu", "x86_64-linux-gnu").replace("cortex-a55", "x86-64-v2")
    _file(tmp_path, own)
    (tmp_path / "net.onnx").write_bytes(network().SerializeToString())
    shown = halotile("targets", "show", "./my-board.toml", cwd=tmp_path)
    assert shown.returncode == 0 and "x86-64-v2" in shown.stdout, shown.stderr
    built = halotile("build", "net.onnx", "-t", "./my-board.toml", "-o", "out", "--format", "so", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert '"id": "my-board"' in (tmp_path / "out" / "manifest.json").read_text()
    _file(tmp_path, own + "l4_bytes = 3\n")
    refused = halotile("build", "net.onnx", "-t", "./my-board.toml", "-o", "other", cwd=tmp_path)
    assert refused.returncode == 1 and len(refused.stderr.strip().splitlines()) == 1, refused.stderr
    assert "l4_bytes" in refused.stderr and not (tmp_path / "other").exists()
