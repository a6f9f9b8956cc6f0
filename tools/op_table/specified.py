"""The functions that the language's specification names: the table must have them all."""

from __future__ import annotations

_NAMES = """
add sub mul true_divide div floor_divide remainder pow neg abs sign square reciprocal rsub
fmod lerp addcmul addcdiv hypot
floor ceil round trunc frac
exp exp2 expm1 log log2 log10 log1p logaddexp sqrt rsqrt xlogy
sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh
erf erfc erfinv lgamma i0 sigmoid logsigmoid softplus digamma
relu relu6 silu gelu leaky_relu elu hardtanh mish threshold heaviside dropout
eq ne lt le gt ge logical_and logical_or logical_not logical_xor isnan isinf isfinite
maximum minimum clamp clamp_min clamp_max
where masked_fill nan_to_num copysign
bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift
to float half bfloat16 double int long bool type type_as view
clone contiguous detach
tensor zeros_like ones_like full_like empty_like new_zeros new_full
sum mean prod amax amin argmax argmin count_nonzero nansum softmax log_softmax normalize
logsumexp norm var_mean cumsum cumprod sort topk gather
max min var std any all layer_norm rms_norm median cummax logcumsumexp quantile
unsqueeze squeeze reshape flatten unflatten permute transpose T t swapaxes movedim mT
expand expand_as broadcast_to repeat stack cat pad narrow select index_select diagonal roll
split chunk unbind tensor_split flip tril triu
mm addmm bmm baddbmm matmul linear einsum
"""
SPECIFIED: tuple[str, ...] = tuple(_NAMES.split())
"""In the order of the specification: pointwise, reductions, views, matrix products."""
