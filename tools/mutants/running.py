"""Mutants of what makes code and runs it: schedule, backends, runtime, jit, tuner."""

from __future__ import annotations

from tools.mutants.mutant import Mutant

SCHEDULE = (
    Mutant(
        "any amount of shared memory fits",
        "schedule",
        "return not self.limits.shared_bytes or self.shared_bytes <= self.limits.shared_bytes",
        "return True",
        ("test_gates_agree_with_compiled_kernels",),
    ),
    Mutant(
        "warps do not share the registers of a multiprocessor",
        "schedule",
        "registers = min(most, 65536 // (32 * launch.num_warps))",
        "registers = most",
        ("test_gates_agree_with_compiled_kernels",),
    ),
    Mutant(
        "surplus entries of a list are ignored",
        "schedule",
        "if key in HINT_LISTS or all(_is_neutral(key, item) for item in surplus):",
        "if True:",
        ("test_error_texts",),
    ),
    Mutant(
        "missing entries of a list are left out",
        "schedule",
        "return checked + [slot.default for slot in slots[len(items) :]]",
        "return checked",
        ("test_normalize.py::test_full_form_of_a_short_config",),
    ),
)
TRITON = (
    Mutant(
        "partial tiles are not masked",
        "triton",
        "        return any(axis is not None and axis.is_partial for axis in axes)\n",
        "        return False\n",
        ("test_reductions_of_floats",),
    ),
    Mutant(
        "masked lanes are loaded as 0",
        "triton",
        "    fill = emitter.facts.fills.get(op, 0)\n",
        "    fill = 0\n",
        ("test_reductions_of_floats",),
    ),
    Mutant(
        "loaded indices are multiplied in 32 bits",
        "triton",
        "            term = convert(term, dtype, I64)\n",
        "            pass\n",
        ("test_loaded_indices_are_widened_before_the_stride",),
    ),
    Mutant(
        "the first index of a tile is found in 32 bits",
        "triton",
        '        pid = pid.method("to", "tl.int64")\n',
        "        pass\n",
        ("test_rows_far_apart_are_found_in_64_bits",),
    ),
    Mutant(
        "of equal integers the last position wins",
        "triton",
        'return call(_INTEGER_FUNCTIONS[kind], x, op.axis, "tie_break_left=True")',
        'return call(_INTEGER_FUNCTIONS[kind], x, op.axis, "tie_break_left=False")',
        ("test_reductions_keep_the_element_type",),
    ),
    Mutant(
        "sums of int32 overflow before they are int64",
        "triton",
        "accumulated = wanted if wanted.bits >= 32 else I32",
        "accumulated = I32",
        ("test_sums_are_as_wide_as_their_result",),
    ),
    Mutant(
        "scans from the end run from the beginning",
        "triton",
        'options = ["reverse=True"] if op.reverse else []',
        "options: list[str] = []",
        ("test_scans_of_floats",),
    ),
    Mutant(
        "variables of a loop are assigned one after the other",
        "triton",
        "others = [expr for other, expr in pending if other != item[0]]",
        "others: list[Expr] = []",
        ("test_rotating_values_need_one_temporary",),
    ),
    Mutant(
        "ordered loops are pipelined",
        "triton",
        "num_stages = 1 if is_ordered else options.num_stages",
        "num_stages = options.num_stages",
        ("test_a_loop_that_reads_what_it_stored_has_one_stage",),
    ),
    Mutant(
        "an `and` of small elements clears their neighbours",
        "triton",
        '        word = Expr(f"({word}) ^ {_WORD}", shape=shape)\n',
        "        pass\n",
        ("test_bits_of_small_elements",),
    ),
    Mutant(
        "lanes that are masked off swap the first element",
        "triton",
        '        value = call("tl.where", mask, value, expected, shape=shape)\n',
        "",
        ("test_lanes_past_the_end_swap_nothing",),
    ),
)
CPU = (
    Mutant(
        "products and sums are contracted",
        "cpu",
        'return self.value(x.type, f"{op} {x.type} {x.text}, {y.text}")',
        'fast = op + " contract" * op.startswith(("fadd", "fsub", "fmul"))\n'
        '        return self.value(x.type, f"{fast} {x.type} {x.text}, {y.text}")',
        ("test_products_are_rounded_before_they_are_added",),
    ),
    Mutant(
        "static ranges of threads drop the remainder",
        "cpu",
        'builder.binary("sdiv", builder.multiply(count, builder.add(thread, index(1))), threads)',
        'builder.multiply(builder.binary("sdiv", count, threads), builder.add(thread, index(1)))',
        ("test_every_program_runs_once",),
    ),
    Mutant(
        "the last turn of a thread runs past the last program",
        "cpu",
        "end = builder.minimum(builder.add(state[0], chunk), count)",
        "end = builder.add(state[0], chunk)",
        ("test_every_program_runs_once",),
    ),
    Mutant(
        "the last vector of a line is stored whole",
        "cpu",
        "    if mask is None and not pointer.type.is_vector:\n        builder.store(x, pointer)",
        "    if not pointer.type.is_vector:\n        builder.store(x, pointer)",
        ("test_lines",),
    ),
    Mutant(
        "of equal elements in two vectors the later position wins",
        "cpu",
        'earlier = builder.binary("and", tie, builder.compare("slt", y[1], x[1]))',
        'earlier = builder.binary("and", tie, builder.compare("sgt", y[1], x[1]))',
        ("test_reductions",),
    ),
    Mutant(
        "argmax passes over NaN",
        "cpu",
        'better = builder.compare(f"u{function}", x, y)',
        'better = builder.compare(f"o{function}", x, y)',
        ("test_torch_reductions.py::test_nan_and_infinity_go_where_eager_sends_them",),
    ),
    Mutant(
        "loads move behind stores to the same memory",
        "cpu",
        "if order[load.op] < order[write.op] < order[user]:",
        "if False:",
        ("test_updates_are_seen_and_old_values_kept",),
    ),
)
JIT = (
    Mutant(
        "calls with shared storage reuse code for separate tensors",
        "jit",
        "parts.append(_alias_expression(names, types))",
        "pass",
        ("test_a_load_sees_a_store_through_another_name",),
    ),
    Mutant(
        "constants 0.0 and -0.0 share compiled code",
        "jit",
        "return (kind, argument if kind is int else repr(argument))",
        "return (kind, argument)",
        ("test_constants_count_by_value",),
    ),
    Mutant(
        "functions with other closures share compiled code",
        "jit",
        "return (function.__code__, id(function.__globals__), *held)",
        "return (function.__code__, id(function.__globals__))",
        ("test_a_captured_tensor_is_an_input",),
    ),
    Mutant(
        "dynamic shapes and static ones have the same key",
        "jit",
        'form if self.are_sizes_fixed else f"form({form})"',
        "f'form({form})'",
        ("test_other_forms_have_other_keys",),
    ),
)
RUNTIME = (
    Mutant(
        "damaged objects of the right length are loaded",
        "runtime",
        "return _HEAD.pack(_MAGIC, digest, len(content), sha256(content).digest())",
        "return _HEAD.pack(_MAGIC, digest, len(content), bytes(32))",
        ("test_a_damaged_entry_is_made_again_and_mended",),
    ),
    Mutant(
        "an object of another kernel under this name is loaded",
        "runtime",
        "digest = sha256(key.encode()).digest()",
        "digest = bytes(32)",
        ("test_the_object_of_another_kernel_under_this_name_is_not_run",),
    ),
    Mutant(
        "objects are found by the beginning of their text",
        "runtime",
        'return sha256("\\0".join(parts).encode()).hexdigest()',
        'return sha256("".join(parts).encode()).hexdigest()',
        ("test_keys_tell_all_their_parts_apart",),
    ),
    Mutant(
        "code with other instructions is taken for the same",
        "runtime",
        'self.identity = f"{self.triple} {self.cpu} {target.features} O{OPTIMIZATION_LEVEL}"',
        'self.identity = f"{self.triple} O{OPTIMIZATION_LEVEL}"',
        ("test_one_maker_per_target",),
    ),
    Mutant(
        "integers of 33 bits reuse code for those of 32",
        "runtime",
        'f"-{2**31} <= {name} < {2**31}"',
        '"True"',
        ("test_integers_count_by_what_triton_specialises_on",),
    ),
)
TUNER = (
    Mutant(
        "candidates are dropped by ranks the wrong way round",
        "tuner",
        "is_slower = chance_of_ranks(candidate, allowed) < self.significance",
        "is_slower = chance_of_ranks(allowed, candidate) < self.significance",
        ("test_slower_candidates_are_dropped_after_few_samples",),
    ),
    Mutant(
        "the margin makes candidates slower, not the best",
        "tuner",
        "allowed = [sample * (1.0 + self.margin) for sample in best]",
        "allowed = [sample * (1.0 - self.margin) for sample in best]",
        ("test_a_candidate_as_fast_as_the_best_is_almost_never_dropped",),
    ),
    Mutant(
        "rank tests leave out the arrangement that was seen",
        "measure",
        "for below in range(losses + 1))",
        "for below in range(losses))",
        ("test_chances_of_ranks_are_those_of_counted_arrangements",),
    ),
    Mutant(
        "a fast sample beats as many as there are fast ones",
        "measure",
        "_arrangements(m, n - 1, losses - m)",
        "_arrangements(m, n - 1, losses - n)",
        ("test_chances_of_ranks_are_those_of_counted_arrangements",),
    ),
    Mutant(
        "winners of another device are found",
        "tuner",
        "return digest_text(self.family, self.arguments, self.device, self.regime)",
        "return digest_text(self.family, self.arguments, self.regime)",
        ("test_only_the_same_conditions_are_recalled",),
    ),
    Mutant(
        "winners under other settings are found",
        "tuner",
        "return digest_text(self.kernel, self.source, self.settings, self.target)",
        "return digest_text(self.kernel, self.source, self.target)",
        ("test_what_may_change_a_time_changes_the_key",),
    ),
    Mutant(
        "an import replaces winners by slower ones",
        "tuner",
        "is_better = (new.median_ms, old.time) < (old.median_ms, new.time)",
        "is_better = (new.median_ms, old.time) > (old.median_ms, new.time)",
        ("test_import_keeps_the_faster",),
    ),
    Mutant(
        "of several old winners the oldest is used",
        "tuner",
        "latest = max(old, key=lambda item: (item.time, item.digest), default=None)",
        "latest = min(old, key=lambda item: (item.time, item.digest), default=None)",
        ("test_of_several_old_winners_the_latest_counts",),
    ),
    Mutant(
        "strides are no part of what a winner is for",
        "tuner",
        "{list(value.shape)}{'' if value.is_contiguous() else told}",
        "{list(value.shape)}",
        ("test_what_may_change_a_time_changes_the_key",),
    ),
)
