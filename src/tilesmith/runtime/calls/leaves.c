/* The leaves of arguments: what containers hold, in a fixed order. */

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
    } else if (is_container(argument)) {
        for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(argument); i++)
            if (spread_argument(leaves, PySequence_Fast_GET_ITEM(argument, i))) return -1;
    }
    return 0;
}

static int spread_all(Leaves *leaves) {
    for (Py_ssize_t i = 0; i < leaves->num_args; i++)
        if (spread_argument(leaves, leaves->args[i])) return -1;
    return 0;
}

void find_leaves(Leaves *leaves, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t num_plain = 0;
    leaves->args = leaves->objects = args;
    leaves->num_args = leaves->count = count;
    leaves->num_spread = 0;
    leaves->are_too_many = count > MAX_ARGUMENTS;
    while (num_plain < count && !is_container(args[num_plain])) num_plain++;
    if (leaves->are_too_many || num_plain == count) return;
    leaves->are_too_many = spread_all(leaves) != 0;
    if (leaves->are_too_many) return;
    leaves->objects = leaves->spread;
    leaves->count = leaves->num_spread;
}

void release_leaves(Leaves *leaves) {
    while (leaves->num_spread) Py_DECREF(leaves->spread[--leaves->num_spread]);
}
