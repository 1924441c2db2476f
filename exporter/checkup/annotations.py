"""What HAMi wrote for this node: its register on the Node, and its allocations on the pods.

Invariant: an annotation that is there and says nothing readable is a finding; one that is not there is
only as wrong as the rest of the node makes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from exporter.checkup.finding import Line, finding, note, ok
from exporter.hami.annotations.flaw import Flaw
from exporter.hami.annotations.node_register import HAMI_KEY, RegisteredDevice, registered
from exporter.hami.holding import NVIDIA, TERMINAL_PHASES, HeldSlice, holding
from exporter.hami.resources import ResourceNames, layout_of
from exporter.kube.objects import Node, Pod

REGISTER = "hami register"
ALLOCATIONS = "hami allocations"


def look_at_node(node_name: str, nodes: Sequence[Node] | None) -> tuple[list[Line], Node | None]:
    """Whether our Node is there and what HAMi registered on it."""
    if nodes is None:
        return [note("node", "not known: nodes were not listed"), note(REGISTER, "not known")], None
    node = next((each for each in nodes if each.metadata.name == node_name), None)
    if node is None:
        way_out = "give the Node's own name with --node-name, or NODE_NAME from spec.nodeName"
        return [
            finding("node", f'there is no Node "{node_name}"', way_out),
            note(REGISTER, "not known without the Node"),
        ], None
    return [ok("node", f'"{node_name}" exists'), _register(node)], node


def devices_of(node: Node | None) -> tuple[RegisteredDevice, ...]:
    """HAMi's devices on a node."""
    return () if node is None else registered(node.metadata.annotations).devices


def look_at_pods(
    pods: Sequence[Pod] | None, names: ResourceNames, now_ms: int
) -> tuple[Line, frozenset[str]]:
    """What pods hold now.

    Returns:
        The line, and the UIDs of pods whose slices HAMi-core should serve (those on MIG have no region).
    """
    if pods is None:
        return note(ALLOCATIONS, "not known: pods were not listed"), frozenset()
    slices: list[tuple[str, HeldSlice]] = []
    waiting: list[str] = []
    flaws: list[Flaw] = []
    flawed: list[str] = []
    for pod in pods:
        found = holding(pod, names, seen_at_ms=now_ms)
        mine = [held for held in found.current if held.grant.vendor == NVIDIA]
        slices += [(pod.metadata.uid, held) for held in mine]
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if found.errors:
            flaws += found.errors
            flawed.append(name)
        elif not found.slices and _wants_one(pod, names):
            waiting.append(name)
    served = frozenset(uid for uid, held in slices if held.grant.mig is None)
    counted = f"{len(slices)} slices held by {len({uid for uid, _ in slices})} of {len(pods)} pods"
    if flaws:
        return finding(
            ALLOCATIONS,
            f"{counted}; not all can be read: {_by_reason(flaws)}, in {_some(flawed)}",
            "slicemeter annotation show pod-devices VALUE says what is wrong with an annotation",
        ), served
    if waiting:
        return finding(
            ALLOCATIONS,
            f"{counted}; pods that ask for a GPU have no allocation: {_some(waiting)}",
            "they bypass HAMi: is HAMi's webhook running, and is their schedulerName HAMi's scheduler",
        ), served
    if not slices:
        return note(ALLOCATIONS, f"{counted}: there is no slice to show"), served
    return ok(ALLOCATIONS, counted), served


def look_at_registers(nodes: Sequence[Node] | None) -> Line:
    """What HAMi registered in the whole cluster."""
    if nodes is None:
        return note(REGISTER, "not known: nodes were not listed")
    registers = {node.metadata.name: registered(node.metadata.annotations) for node in nodes}
    devices = sum(len(each.devices) for each in registers.values())
    flaws = [flaw for each in registers.values() for flaw in each.errors]
    counted = (
        f"{devices} devices registered on {sum(bool(each.devices) for each in registers.values())} nodes"
    )
    if flaws:
        flawed = [name for name, each in registers.items() if each.errors]
        return finding(
            REGISTER,
            f"{counted}; not all can be read: {_by_reason(flaws)}, on {_some(flawed)}",
            "slicemeter annotation show node-register VALUE says what is wrong",
        )
    if not devices:
        return finding(
            REGISTER, counted, "check that HAMi's device plugin runs on the GPU nodes (label gpu=on)"
        )
    return ok(REGISTER, counted)


def _register(node: Node) -> Line:
    found = registered(node.metadata.annotations)
    devices = f"{len(found.devices)} devices registered"
    if found.errors:
        return finding(
            REGISTER,
            f"{devices}; not all can be read: {_by_reason(found.errors)}",
            "slicemeter annotation show node-register VALUE says what is wrong",
        )
    if not found.devices:
        return finding(
            REGISTER,
            f"no device registered ({HAMI_KEY})",
            "check that HAMi's device plugin runs on this node (label gpu=on) and see its log",
        )
    ill = [device.uuid for device in found.devices if not device.health]
    if ill:
        return finding(
            REGISTER, f"{devices}; unhealthy: {_some(ill)}", "see the device plugin's log and dmesg"
        )
    return ok(REGISTER, f"{devices}, {sum(device.count for device in found.devices)} slots")


def _wants_one(pod: Pod, names: ResourceNames) -> bool:
    """Whether a bound pod should hold a slice."""
    if pod.spec.node_name is None or pod.status.phase in TERMINAL_PHASES:
        return False
    return bool(layout_of(pod, names).requesters)


def _by_reason(flaws: Sequence[Flaw]) -> str:
    counts = Counter((flaw.kind, flaw.reason) for flaw in flaws)
    return ", ".join(f"{kind} {reason} ×{count}" for (kind, reason), count in sorted(counts.items()))


def _some(names: Sequence[str], most: int = 3) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
