"""Half precision for CPUs that cannot convert it (x86 before F16C).

There LLVM calls two functions of the compiler's run-time library, which need not be loaded. A
module for such a CPU that holds half floats must hold ``HALF_CONVERSIONS`` too.
"""

from __future__ import annotations

HALF_CONVERSIONS = """
define weak hidden float @__extendhfsf2(half %x) nounwind {
  %bits = bitcast half %x to i16
  %wide = zext i16 %bits to i32
  %magnitude = and i32 %wide, 32767
  %placed = shl i32 %magnitude, 13
  %normal = add i32 %placed, 939524096
  %special = or i32 %placed, 2139095040
  %is_special = icmp uge i32 %magnitude, 31744
  %large = select i1 %is_special, i32 %special, i32 %normal
  %steps = uitofp i32 %magnitude to float
  %small = fmul float %steps, 0x3E70000000000000
  %small_bits = bitcast float %small to i32
  %is_small = icmp ult i32 %magnitude, 1024
  %result = select i1 %is_small, i32 %small_bits, i32 %large
  %sign = and i32 %wide, 32768
  %placed_sign = shl i32 %sign, 16
  %signed = or i32 %result, %placed_sign
  %float = bitcast i32 %signed to float
  ret float %float
}
define weak hidden half @__truncsfhf2(float %x) nounwind {
  %bits = bitcast float %x to i32
  %magnitude = and i32 %bits, 2147483647
  %last = lshr i32 %magnitude, 13
  %is_odd = and i32 %last, 1
  %raised = add i32 %magnitude, 4095
  %rounded = add i32 %raised, %is_odd
  %rebiased = sub i32 %rounded, 939524096
  %normal = lshr i32 %rebiased, 13
  %is_large = icmp uge i32 %magnitude, 1199566848
  %finite = select i1 %is_large, i32 31744, i32 %normal
  %is_nan = icmp ugt i32 %magnitude, 2139095040
  %large = select i1 %is_nan, i32 32256, i32 %finite
  %float = bitcast i32 %magnitude to float
  %stepped = fadd float %float, 0x3FE0000000000000
  %stepped_bits = bitcast float %stepped to i32
  %small = sub i32 %stepped_bits, 1056964608
  %is_small = icmp ult i32 %magnitude, 947912704
  %result = select i1 %is_small, i32 %small, i32 %large
  %sign = lshr i32 %bits, 16
  %placed_sign = and i32 %sign, 32768
  %signed = or i32 %result, %placed_sign
  %narrow = trunc i32 %signed to i16
  %half = bitcast i16 %narrow to half
  ret half %half
}
"""
