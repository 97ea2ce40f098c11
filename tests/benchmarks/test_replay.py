"""Kernel replay: what is the same is found the same, what is altered is named, and the stored table is this tree's."""

from __future__ import annotations

from pathlib import Path

import pytest
from halotile.benchmarks import replay as r
from halotile.benchmarks.models import MODELS
from halotile.targets.resolve import resolve

TARGET = resolve("x86-64-v3")


def small(name: str, **options: object) -> r.Replayed:
    return r.replay(MODELS[name].model(small=True), TARGET, **options)


def test_a_build_is_like_the_one_before() -> None:
    was, now = small("resnet18"), small("resnet18")
    assert was.record.kernels
    assert was.record == now.record
    assert not r.differences(was.record, {}, now, TARGET)


def test_what_an_option_alters_is_named() -> None:
    was, now = small("vit"), small("vit", exact=True)
    found = r.differences(was.record, r.objects_of(was.functions, TARGET), now, TARGET)
    altered = [d for d in found if not d.same]
    assert altered
    assert all("altered" in str(d) for d in altered)
    assert {d.what.split()[0] for d in altered} <= {"arena", "constants", "kernel"}


def test_another_function_with_the_same_object_is_no_change() -> None:
    now = small("bert")
    key = now.record.kernels[0]
    objects = {"before": r.object_of(now.functions[key], TARGET)}
    was = r.ModelRecord(now.record.arena, now.record.weights, ["before", *now.record.kernels[1:]])
    (found,) = r.differences(was, objects, now, TARGET)
    assert found.same
    (other,) = r.differences(was, {"before": "0" * r.DIGITS}, now, TARGET)
    assert not other.same


def test_arenas_constants_and_kernels_that_came_or_went() -> None:
    now = small("bert")
    fewer = r.ModelRecord(now.record.arena - 64, "0" * r.DIGITS, now.record.kernels[1:])
    what = [d.what for d in r.differences(fewer, {}, now, TARGET)]
    assert what[:2] == ["arena", "constants"]
    assert len(what) == 3
    more = r.ModelRecord(now.record.arena, now.record.weights, ["gone", *now.record.kernels])
    (gone,) = r.differences(more, {}, now, TARGET)
    assert (gone.was, gone.now) == ("gone", "")


def test_a_table_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(r, "TABLES", tmp_path / "tables")
    now = small("vit")
    table = r.ReplayTable({"vit": now.record}, {**dict.fromkeys(now.record.kernels, "0"), "unused": "1"})
    r.write_table("x86-64-v3", table)
    read = r.read_table("x86-64-v3")
    assert read.models == {"vit": now.record}
    assert set(read.objects) == set(now.record.kernels)
    assert r.read_table("raspberry-pi-4") == r.ReplayTable()


@pytest.mark.parametrize(("target", "model"), [("raspberry-pi-5", "mobilenet_v2"), ("sapphirerapids", "bert")])
def test_the_stored_table_is_of_this_tree(target: str, model: str) -> None:
    """If it fails after a change that means to alter kernels: look at what ``python -m halotile.benchmarks.replay``
    prints, say it in the commit, and store it with ``--update``."""
    table = r.read_table(target)
    now = r.replay(MODELS[model].model(), resolve(r.TARGETS[target]))
    assert now.record == table.models[model]
    assert set(now.functions) <= set(table.objects)


def test_the_tables_know_models_and_objects() -> None:
    zoo = {n for n, e in MODELS.items() if "bench" in e.tags}
    tables = {target: r.read_table(target) for target in r.TARGETS}
    for target, table in tables.items():
        assert set(table.models) == zoo, target
        assert {k for record in table.models.values() for k in record.kernels} == set(table.objects), target
