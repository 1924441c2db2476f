"""The fast encoder: byte for byte what prometheus-client would write, rendered once for all scrapers."""

from __future__ import annotations

import math
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from contract.catalogue import BY_NAME, FAMILIES, families_of
from exporter.exposition.board import Board
from exporter.exposition.collector import PageCollector
from exporter.exposition.encoder import PageEncoder
from exporter.exposition.page import NATIVE_FAMILIES, Page, PageBuilder

PAGED = [family for family in FAMILIES if family.name not in NATIVE_FAMILIES]

label_values = st.text(max_size=6) | st.sampled_from(['quote"', "back\\slash", "new\nline", "ünïcode 🌊", ""])
values = (
    st.floats()
    | st.integers(-(2**60), 2**60).map(float)
    | st.sampled_from([0.0, -0.0, 1e6, 999_999.0, 1_000_000.0, 12_345_678.5, 1e16, 1e17, 1e-7, -1e7, 1e300])
)


@st.composite
def pages(draw: st.DrawFn) -> Page:
    builder = PageBuilder()
    for family in draw(st.lists(st.sampled_from(PAGED), max_size=5, unique=True)):
        for _ in range(draw(st.integers(1, 4))):
            labels = [draw(label_values.filter(is_utf8)) for _ in family.labels]
            since_s = draw(st.none() | st.floats(0, 2e9)) if family.type == "counter" else None
            builder.add(family.name, labels, draw(values), since_s)
    return builder.build(1.0)


def is_utf8(text: str) -> bool:
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def stock(page: Page, *, openmetrics: bool) -> bytes:
    """What prometheus-client makes of the page, through our collector."""
    board = Board()
    board.publish(page)
    registry = CollectorRegistry()
    registry.register(PageCollector(board, "node", has_created=openmetrics))
    if openmetrics:
        text: bytes = generate_openmetrics(registry)  # type: ignore[no-untyped-call]
        return text.removesuffix(b"# EOF\n")
    return generate_latest(registry)


@settings(max_examples=40)
@given(st.lists(pages(), min_size=1, max_size=3))
def test_pages_are_byte_equal_to_the_stock_encoders_in_both_formats(some: list[Page]) -> None:
    encoder = PageEncoder()
    for page in some:  # one after the other, so that kept prefixes are met again
        assert encoder.render(page, openmetrics=False) == stock(page, openmetrics=False)
        assert encoder.render(page, openmetrics=True) == stock(page, openmetrics=True)


def test_a_counter_a_gauge_and_an_identity_look_as_the_formats_say() -> None:
    builder = PageBuilder()
    builder.add("device_busy_seconds_total", ["n1", "GPU-1"], 12_345_678.5)
    builder.add("device_temperature_celsius", ["n1", "GPU-1"], 71.25)
    builder.add("device_info", ["n1", "GPU-1", 'T4 "x"', "NVIDIA", "0", "hami-core", "580"], 1)
    page = builder.build(1.0)
    identity = (
        'slicemeter_device_info{device_uuid="GPU-1",driver_version="580",index="0",mode="hami-core",'
        'model="T4 \\"x\\"",node="n1",vendor="NVIDIA"} 1.0\n'
    )
    busy = 'slicemeter_device_busy_seconds_total{device_uuid="GPU-1",node="n1"} 1.23456785e+07\n'
    celsius = 'slicemeter_device_temperature_celsius{device_uuid="GPU-1",node="n1"} 71.25\n'
    text = (
        "# HELP slicemeter_device_info Identity of a device; 1.\n"
        "# TYPE slicemeter_device_info gauge\n" + identity + "# HELP slicemeter_device_busy_seconds_total "
        "Seconds of SM time on the device, all processes together.\n"
        "# TYPE slicemeter_device_busy_seconds_total counter\n"
        + busy
        + "# HELP slicemeter_device_temperature_celsius Temperature of the GPU.\n"
        "# TYPE slicemeter_device_temperature_celsius gauge\n" + celsius
    )
    encoder = PageEncoder()
    assert encoder.render(page, openmetrics=False).decode() == text
    openmetrics = text.replace(
        "HELP slicemeter_device_busy_seconds_total", "HELP slicemeter_device_busy_seconds"
    ).replace("TYPE slicemeter_device_busy_seconds_total", "TYPE slicemeter_device_busy_seconds")
    assert encoder.render(page, openmetrics=True).decode() == openmetrics


def test_openmetrics_says_since_when_a_counter_counts_and_text_does_not() -> None:
    builder = PageBuilder()
    builder.add("device_busy_seconds_total", ["n1", "GPU-1"], 5, 1_790_000_000.25)
    builder.add("device_busy_seconds_total", ["n1", "GPU-2"], 6)
    page = builder.build(1.0)
    first, second = (
        f'slicemeter_device_busy_seconds_total{{device_uuid="GPU-{number}",node="n1"}} {value}\n'
        for number, value in ((1, "5.0"), (2, "6.0"))
    )
    created = 'slicemeter_device_busy_seconds_created{device_uuid="GPU-1",node="n1"} 1.79000000025e+09\n'
    encoder = PageEncoder()
    assert encoder.render(page, openmetrics=True).decode().endswith(first + created + second)
    assert encoder.render(page, openmetrics=False).decode().endswith(first + second)


def test_a_page_is_rendered_once_per_encoding_and_shared() -> None:
    builder = PageBuilder()
    builder.add("device_power_watts", ["n1", "GPU-1"], 1)
    page = builder.build(1.0)
    encoder = PageEncoder()
    first = encoder.render(page, openmetrics=False)
    assert encoder.render(page, openmetrics=False) is first
    assert encoder.render(page, openmetrics=True) is encoder.render(page, openmetrics=True)


def test_gzip_is_one_stream_with_the_tail_behind_the_page() -> None:
    builder = PageBuilder()
    builder.add("device_power_watts", ["n1", "GPU-1"], 1)
    page = builder.build(1.0)
    encoder = PageEncoder()
    plain = encoder.render(page, openmetrics=False)
    for tail in (b"# EOF\n", b"", b"other 1.0\n" * 1000):
        packed = encoder.render_gzip(page, tail, openmetrics=False)
        # One member: some clients read no further than the first.
        first = zlib.decompressobj(wbits=31)
        assert first.decompress(packed) == plain + tail
        assert first.eof
        assert first.unused_data == b""


def test_prefixes_of_series_that_are_gone_are_forgotten() -> None:
    encoder = PageEncoder()
    for pod in range(50):
        builder = PageBuilder()
        builder.add("slice_processes", ["n", "ns", f"pod-{pod}", "c", "GPU-1", "t"], 1)
        encoder.render(builder.build(float(pod)), openmetrics=False)
    assert [len(kept.prefixes) for kept in encoder._kept.values()] == [1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (0.3, "0.3"),
        (999_999.0, "999999.0"),
        (1_000_000.0, "1e+06"),
        (3_862_953_984.0, "3.862953984e+09"),
        (85_899_345_920.0, "8.589934592e+10"),
        (-2_000_000.0, "-2000000.0"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (math.nan, "NaN"),
    ],
)
def test_numbers_are_written_as_go_writes_them(value: float, text: str) -> None:
    builder = PageBuilder()
    builder.add("snapshot_timestamp_seconds", [], value)
    last = PageEncoder().render(builder.build(1.0), openmetrics=False).splitlines()[-1]
    assert last.decode() == f"slicemeter_snapshot_timestamp_seconds {text}"


def test_a_family_kept_natively_is_refused_on_a_page() -> None:
    with pytest.raises(ValueError, match="push_total"):
        PageBuilder().add("push_total", ["ok"], 1)


def test_native_families_are_known_to_the_catalogue_and_belong_to_the_exporter() -> None:
    assert set(BY_NAME) >= NATIVE_FAMILIES
    emitted = {family.name for role in ("node", "cluster") for family in families_of(role)}
    assert emitted >= NATIVE_FAMILIES
