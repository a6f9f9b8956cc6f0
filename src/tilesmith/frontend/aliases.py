"""Other names that torch has for functions of the table."""

from __future__ import annotations

ALIASES: dict[str, str] = {
    "arccos": "acos", "arccosh": "acosh", "arcsin": "asin", "arcsinh": "asinh", "arctan": "atan",
    "arctan2": "atan2", "arctanh": "atanh", "fix": "trunc",
    "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le", "not_equal": "ne",
    "special_exp2": "exp2", "special_expm1": "expm1", "special_log1p": "log1p",
    "special_round": "round", "special_sinc": "sinc", "special_xlogy": "xlogy",
    "special_logsumexp": "logsumexp", "special_expit": "sigmoid", "special_psi": "digamma",
    "special_digamma": "digamma", "special_erf": "erf", "special_erfc": "erfc",
    "special_erfinv": "erfinv", "special_gammaln": "lgamma", "special_softmax": "softmax",
    "special_log_softmax": "log_softmax", "special_logit": "logit", "special_i0": "i0",
    "special_multigammaln": "mvlgamma",
}  # fmt: skip
"""The other name -> the row that it shares."""
