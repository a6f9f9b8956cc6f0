"""Small native kernels in LLVM text, for tests of what compiles, loads and calls them."""

from __future__ import annotations

from tilesmith.artifacts import Artifact, LaunchParameter
from tilesmith.runtime.native.host_cpu import host_target
from tilesmith.targets import Target

ECHO = """
define void @echo(ptr %arguments, i64 %threads) {
entry:
  %out = load ptr, ptr %arguments
  br label %head
head:
  %i = phi i64 [ 1, %entry ], [ %next, %body ]
  %more = icmp slt i64 %i, COUNT
  br i1 %more, label %body, label %after
body:
  %from = getelementptr i64, ptr %arguments, i64 %i
  %value = load i64, ptr %from
  %to = getelementptr i64, ptr %out, i64 %i
  store i64 %value, ptr %to
  %next = add i64 %i, 1
  br label %head
after:
  store i64 %threads, ptr %out
  ret void
}
"""
"""Copies COUNT slots into its first tensor; in front of them the number of threads asked for."""

TEAM = """
declare void @GOMP_parallel(ptr, ptr, i32, i32)
declare i32 @omp_get_thread_num()
declare i32 @omp_get_num_threads()
define internal void @member(ptr %out) {
  %number = call i32 @omp_get_thread_num()
  %count = call i32 @omp_get_num_threads()
  %place = sext i32 %number to i64
  %to = getelementptr i64, ptr %out, i64 %place
  %wide = sext i32 %count to i64
  store i64 %wide, ptr %to
  ret void
}
define void @team(ptr %arguments, i64 %threads) {
  %out = load ptr, ptr %arguments
  %count = trunc i64 %threads to i32
  call void @GOMP_parallel(ptr @member, ptr %out, i32 %count, i32 0)
  ret void
}
"""
"""Every thread of the team writes the team's size at its own place."""

EXPONENTIALS = """
declare double @exp(double)
define void @exponentials(ptr %arguments, i64 %threads) {
  %out = load ptr, ptr %arguments
  %from = getelementptr i64, ptr %arguments, i64 1
  %x = load double, ptr %from
  %y = call double @exp(double %x)
  store double %y, ptr %out
  ret void
}
"""
"""Calls a function of libm."""


def tensor(name: str, dtype: str = "i64", source: str = "") -> LaunchParameter:
    return LaunchParameter(name, source or name, True, dtype)


def scalar(name: str, dtype: str, source: str = "") -> LaunchParameter:
    return LaunchParameter(name, source or name, False, dtype)


def artifact(
    name: str,
    text: str,
    *parameters: LaunchParameter,
    written: tuple[str, ...] = (),
    target: Target | None = None,
) -> Artifact:
    """A native kernel as a backend would hand it over."""
    text = text.replace("COUNT", str(len(parameters)))
    options = {"written": list(written)}
    target = target or host_target()
    return Artifact(name, "", parameters, (), (), options, target, text, backend="cpu")
