/* The leaves of arguments: what containers and functions hold, in a fixed order. */

#include "exchange.h"

static int append(Leaves *leaves, PyObject *object) {
    if (leaves->num_spread == MAX_LEAVES) return -1;
    /* Held: code that runs meanwhile may change the container. */
    leaves->spread[leaves->num_spread++] = Py_NewRef(object);
    return 0;
}

/* The container itself comes first, so one that holds itself ends where there is no more room. */
int spread_argument(Leaves *leaves, PyObject *argument) {
    if (append(leaves, argument)) return -1;
    if (PyDict_CheckExact(argument)) {
        PyObject *key, *value;
        Py_ssize_t position = 0;
        while (PyDict_Next(argument, &position, &key, &value))
            if (spread_argument(leaves, value)) return -1;
    } else if (PyFunction_Check(argument)) {
        for (Py_ssize_t i = 0; i < num_cells(argument); i++) {
            PyObject *held = PyCell_GET(PyTuple_GET_ITEM(PyFunction_GET_CLOSURE(argument), i));
            if (held == NULL || spread_argument(leaves, held)) return -1;
        }
    } else if (is_container(argument)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(argument); i++)
            if (spread_argument(leaves, PySequence_Fast_GET_ITEM(argument, i))) return -1;
    }
    return 0;
}

void spread_arguments(Leaves *leaves) {
    for (Py_ssize_t i = 0; i < leaves->num_args && !leaves->are_too_many; i++)
        leaves->are_too_many = spread_argument(leaves, leaves->args[i]) != 0;
    if (leaves->are_too_many) return;
    leaves->objects = leaves->spread;
    leaves->count = leaves->num_spread;
}
