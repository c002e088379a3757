"""How many blocks of memory a piece of Python asks for: CPython's allocator of objects, counted in machine code.

`tracemalloc` knows what is still held, not what was asked for and given back, which is what costs time. The counter
stands before the allocator while `counting` lasts, and hands every request on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import llvmlite.binding as llvm

OBJECTS: Final = 2  # PYMEM_DOMAIN_OBJ
FUNCTION: Final = ctypes.c_void_p


class Allocator(ctypes.Structure):
    """PyMemAllocatorEx."""

    _fields_ = (
        ("ctx", ctypes.c_void_p),
        ("malloc", FUNCTION),
        ("calloc", FUNCTION),
        ("realloc", FUNCTION),
        ("free", FUNCTION),
    )


# Each function finds the original allocator by its context, and gives it its own.
CODE: Final = """
%Allocator = type { ptr, ptr, ptr, ptr, ptr }
@count = global i64 0

define void @add() alwaysinline {
  %now = load i64, ptr @count
  %next = add i64 %now, 1
  store i64 %next, ptr @count
  ret void
}

define ptr @counted_malloc(ptr %original, i64 %size) {
  call void @add()
  %ctx = load ptr, ptr %original
  %place = getelementptr %Allocator, ptr %original, i32 0, i32 1
  %function = load ptr, ptr %place
  %block = tail call ptr %function(ptr %ctx, i64 %size)
  ret ptr %block
}

define ptr @counted_calloc(ptr %original, i64 %number, i64 %size) {
  call void @add()
  %ctx = load ptr, ptr %original
  %place = getelementptr %Allocator, ptr %original, i32 0, i32 2
  %function = load ptr, ptr %place
  %block = tail call ptr %function(ptr %ctx, i64 %number, i64 %size)
  ret ptr %block
}

define ptr @counted_realloc(ptr %original, ptr %old, i64 %size) {
  call void @add()
  %ctx = load ptr, ptr %original
  %place = getelementptr %Allocator, ptr %original, i32 0, i32 3
  %function = load ptr, ptr %place
  %block = tail call ptr %function(ptr %ctx, ptr %old, i64 %size)
  ret ptr %block
}

define void @free_block(ptr %original, ptr %block) {
  %ctx = load ptr, ptr %original
  %place = getelementptr %Allocator, ptr %original, i32 0, i32 4
  %function = load ptr, ptr %place
  tail call void %function(ptr %ctx, ptr %block)
  ret void
}
"""


@cache
def _engine() -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(CODE)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    return engine


class AllocationCounter:
    """`number` is the count at the end of `counting`."""

    number = 0


@contextmanager
def counting() -> Iterator[AllocationCounter]:
    """Count the blocks that Python's objects ask for, in all threads."""
    engine, counter = _engine(), AllocationCounter()
    original, ours = Allocator(), Allocator()
    ctypes.pythonapi.PyMem_GetAllocator(OBJECTS, ctypes.byref(original))
    names = ("counted_malloc", "counted_calloc", "counted_realloc", "free_block")
    ours.malloc, ours.calloc, ours.realloc, ours.free = map(engine.get_function_address, names)
    ours.ctx = ctypes.addressof(original)
    count = ctypes.c_int64.from_address(engine.get_global_value_address("count"))
    count.value = 0
    ctypes.pythonapi.PyMem_SetAllocator(OBJECTS, ctypes.byref(ours))
    try:
        yield counter
    finally:
        ctypes.pythonapi.PyMem_SetAllocator(OBJECTS, ctypes.byref(original))
        counter.number = count.value
