"""Facts: one byte form, one key, and a reader that names the field it cannot take."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.facts import (
    AllocationFact,
    DeviceUsageFact,
    Fact,
    NodeStateFact,
    PresenceFact,
    SliceUsageFact,
    UnallocatedUseFact,
    canonical_bytes,
    decode_fact,
    natural_key,
)

NODE_STATE = b"""
{"cluster":"a","from_ms":1,"heartbeat_at_ms":2,"node":"n","node_uid":"u","ready":true,"schema":1,"to_ms":3,\
"type":"node_state"}
""".strip()

texts = st.text(max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1)


KINDS: tuple[type[Fact], ...] = (
    AllocationFact,
    PresenceFact,
    NodeStateFact,
    SliceUsageFact,
    UnallocatedUseFact,
    DeviceUsageFact,
)
PLAIN: dict[type[msgspec.inspect.Type], st.SearchStrategy[object]] = {
    msgspec.inspect.IntType: numbers,
    msgspec.inspect.BoolType: st.booleans(),
    msgspec.inspect.StrType: texts,
    msgspec.inspect.DictType: st.dictionaries(texts, texts, max_size=3),
    msgspec.inspect.NoneType: st.none(),
}


@st.composite
def facts(draw: st.DrawFn) -> Fact:
    """Any fact: every field drawn from its type, whatever accounting makes of it."""
    kind = draw(st.sampled_from(KINDS))
    described = msgspec.inspect.type_info(kind)
    assert isinstance(described, msgspec.inspect.StructType)
    values = {field.encode_name: draw(values_of(field.type)) for field in described.fields}
    return msgspec.convert(values | {"type": described.tag}, kind)


def values_of(described: msgspec.inspect.Type) -> st.SearchStrategy[object]:
    if isinstance(described, msgspec.inspect.LiteralType):
        return st.sampled_from(described.values)
    if isinstance(described, msgspec.inspect.UnionType):
        return st.one_of(*map(values_of, described.types))
    return PLAIN[type(described)]


def test_canonical_bytes_are_json_with_sorted_keys_and_no_blanks() -> None:
    fact = NodeStateFact(
        cluster="a",  # type: ignore[arg-type]
        node_uid="u",  # type: ignore[arg-type]
        node="n",
        from_ms=1,
        to_ms=3,
        ready=True,
        heartbeat_at_ms=2,
    )
    assert canonical_bytes(fact) == NODE_STATE


@given(facts())
def test_canonical_bytes_are_what_the_standard_library_would_write(fact: Fact) -> None:
    fields = json.loads(canonical_bytes(fact))
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical_bytes(fact).decode() == text


@given(facts())
def test_a_fact_read_back_is_the_same_fact(fact: Fact) -> None:
    assert decode_fact(canonical_bytes(fact)) == fact


def test_bytes_in_another_order_are_the_same_fact() -> None:
    shuffled = (
        b'{ "type": "node_state", "ready": true, "to_ms": 3, "from_ms": 1, "heartbeat_at_ms": 2,'
        b' "node": "n", "node_uid": "u", "cluster": "a" }'
    )
    assert canonical_bytes(decode_fact(shuffled)) == NODE_STATE


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"", "truncated"),
        (b'{"type":"gossip","cluster":"a"}', "gossip"),
        (NODE_STATE.replace(b'"to_ms":3', b'"to_ms":3.5'), "to_ms"),
        (NODE_STATE.replace(b'"to_ms":3,', b""), "to_ms"),
        (NODE_STATE.replace(b'"node":"n"', b'"node":7'), r"\$\.node"),
    ],
)
def test_what_is_no_fact_is_refused_with_its_place(line: bytes, words: str) -> None:
    with pytest.raises(msgspec.MsgspecError, match=words):
        decode_fact(line)


@given(facts(), st.integers(0, 10**6))
def test_a_newer_revision_and_a_later_confirmation_keep_the_key(fact: Fact, later: int) -> None:
    changes: dict[str, object] = {}
    if isinstance(fact, AllocationFact):
        changes = {"confirmed_at_ms": later, "ended_at_ms": later, "bound_at_ms": later, "tenant_key": "t"}
    elif isinstance(fact, (PresenceFact, NodeStateFact)):
        changes = {"to_ms": later}
    else:
        changes = {"revision": later, "to_ms": later, "covered_ms": later}
    assert natural_key(msgspec.structs.replace(fact, **changes)) == natural_key(fact)


@given(
    facts(),
    st.sampled_from(["cluster", "pod_uid", "container", "device_uuid", "witness", "epoch", "hour_ms"]),
)
def test_what_the_key_names_tells_two_facts_apart(fact: Fact, field: str) -> None:
    if field not in fact.__struct_fields__:
        return
    value = getattr(fact, field)
    if field == "witness":
        other: object = "cluster" if value == "node" else "node"
    else:
        other = value + 1 if isinstance(value, int) else value + "x"
    if field in {"pod_uid", "container"} and isinstance(fact, (PresenceFact, DeviceUsageFact)):
        return
    assert natural_key(msgspec.structs.replace(fact, **{field: other})) != natural_key(fact)


def test_a_slice_and_an_unallocated_use_of_one_container_are_two_things() -> None:
    shared = {
        "cluster": "a", "device_uuid": "g", "node_uid": "u", "hour_ms": 0, "epoch": "e", "revision": 1,
        "from_ms": 0, "to_ms": 1, "covered_ms": 1, "pod_uid": "p", "container": "c", "unknown_ms": 0,
        "sm_ppm_ms": 0, "sm_down_ppm_ms": 0, "mem_used_mib_ms": 0, "mem_peak_mib": 0, "energy_active_mj": 0,
        "blocked_ms": 0, "over_limit_ms": 0, "source": "nvml",
    }  # fmt: skip
    use = decode_fact(json.dumps(shared | {"type": "slice_usage"}))
    bypass = decode_fact(
        json.dumps(shared | {"type": "unallocated_use", "namespace": "n", "pod": "p", "tenant_key": "t"})
    )
    assert natural_key(use) != natural_key(bypass)
