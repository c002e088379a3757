"""A call of the kernel is in all its faces: a forgotten place is named."""

from __future__ import annotations

import inspect

from lyra.core.kernel_calls import CALLS, MARKS, NEEDS
from lyra.kernel import Kernel, UserKernel
from lyra.server.client.remote import _ARRANGED
from lyra.server.generated import engine_pb2 as pb

# Calls of the program that holds the kernel: no face offers them to others.
HELD = {"cleanup", "cleanup_every", "shutdown", "register_handler", "register_agent"}
TABLE = "lyra/core/kernel_calls.py"


def missing_places(calls=CALLS) -> list[str]:
    """Return a sentence for each place where a call is forgotten."""
    kernel = Kernel()
    methods = {name: method for name, method in vars(Kernel).items() if inspect.isfunction(method)}
    forwarded = {name for name, method in methods.items() if hasattr(method, "__wrapped__")} - HELD
    faults = [f"Kernel.{name} has no row in {TABLE}" for name in sorted(forwarded - calls.keys())]
    for name, call in calls.items():
        holder = getattr(kernel, call.part) if call.part else kernel
        if not hasattr(holder, name):
            faults.append(f"{TABLE} has {name}, and {type(holder).__name__} has no such method")
        if call.needs not in ("kernel", "") and call.part != "bus" and not hasattr(UserKernel, name):
            faults.append(f"UserKernel has no {name}: add a line in lyra/kernel/as_user.py")
        if call.needs not in NEEDS or not set(call.marks.split()) <= MARKS.keys():
            faults.append(f"the row of {name} in {TABLE} has a word that NEEDS and MARKS do not have")
        service, _, rpc = call.rpc.partition("/")
        rpcs = pb.DESCRIPTOR.services_by_name[service].methods_by_name if call.rpc else {}
        if call.rpc and rpc not in rpcs:
            faults.append(f"engine.proto has no RPC {call.rpc}, which {name} of {TABLE} names")
        elif call.rpc and name not in _ARRANGED:
            known = rpcs[rpc].input_type.fields_by_name
            faults += [
                f"{rpcs[rpc].input_type.name} of engine.proto has no field {field}, which {name} of {TABLE} names"
                for field in call.fields.values()
                if field not in known
            ]
    return faults


def test_no_place_of_a_call_is_forgotten():
    assert missing_places() == []


def test_a_forgotten_place_is_named():
    """Planted: a row that is left out, one without a method, one with a field that its message does not have."""
    without = {name: call for name, call in CALLS.items() if name != "schedule"}
    assert missing_places(without) == [f"Kernel.schedule has no row in {TABLE}"]
    twice = {**CALLS, "schedule_all": CALLS["schedule"]}
    assert missing_places(twice) == [
        f"{TABLE} has schedule_all, and Kernel has no such method",
        "UserKernel has no schedule_all: add a line in lyra/kernel/as_user.py",
    ]
    odd = {**CALLS, "send": type(CALLS["send"])("own", "CommBusService/Send", "to", part="bus")}
    assert missing_places(odd) == [
        f"CommBusSendRequest of engine.proto has no field to, which send of {TABLE} names",
    ]
