"""Ids: an allocation's id is computed, the same everywhere and for ever."""

from __future__ import annotations

import hashlib

from contract.ids import ClusterCode, DeviceUuid, PodUid, SliceKey, new_epoch


def key(cluster: str = "a", pod: str = "uid-1", container: str = "main", device: str = "GPU-1") -> SliceKey:
    return SliceKey(ClusterCode(cluster), PodUid(pod), container, DeviceUuid(device))


def test_an_allocation_id_is_the_uuid5_of_the_natural_key() -> None:
    # RFC 9562 §5.5 by hand: SHA-1 over namespace and name, then version and variant bits.
    namespace = bytes.fromhex("6f0c6d8e6f3f5f2b9a530d1b0f6f7a11")
    digest = bytearray(hashlib.sha1(namespace + b"a\x1fuid-1\x1fmain\x1fGPU-1").digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    assert key().allocation_id.bytes == bytes(digest)


def test_equal_names_in_two_clusters_are_two_allocations() -> None:
    assert key(cluster="a").allocation_id != key(cluster="b").allocation_id


def test_no_two_keys_run_into_one_name() -> None:
    assert key(pod="x", container="yz").allocation_id != key(pod="xy", container="z").allocation_id


def test_each_run_has_its_own_epoch() -> None:
    assert new_epoch() != new_epoch()
