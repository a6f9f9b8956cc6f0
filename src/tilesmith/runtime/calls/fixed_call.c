/* The type ``FixedCall``: all of a call whose arguments have one form.

   It makes tensors, hands addresses to machine code and returns what was made. In Python each of
   these steps takes as long as a small kernel runs.

   Values have numbers: first the leaves of the arguments, then tensors that are made, then constants. */

#include "exchange.h"

#include <stddef.h>
#include <string.h>

enum { MAX_VALUES = 192, MAX_SLOTS = 128 };

typedef struct {
    PyObject *function, *args, *names; /* names of the last arguments; NULL: all are positional */
    Py_ssize_t num_positional;
    Py_ssize_t example; /* the number of a leaf that is the only argument; -1: args are given */
} Maker;

typedef enum { ADDRESS, INTEGER, FLOAT, NUM_KINDS } SlotKind;

typedef struct {
    SlotKind kind;
    Py_ssize_t value;
} Slot;

typedef struct {
    PyObject_HEAD
    vectorcallfunc call;
    Code code;
    uintptr_t owner; /* the kernel whose readings it may use */
    PyObject *otherwise; /* what runs calls that this cannot */
    PyObject *constants; /* a tuple */
    PyObject *watched; /* tuples: a dict, a key, what it must have there, that function's code or None */
    PyObject *after; /* called with the results; None: they are returned */
    PyObject *count_threads; /* a function; None: one thread */
    PyObject *kept; /* what the machine code belongs to */
    Py_ssize_t num_leaves, num_makers, num_slots, num_results;
    int is_tuple; /* whether results are returned in one */
    Maker *makers;
    Slot *slots;
    Py_ssize_t *results;
} FixedCall;

typedef struct {
    PyObject *values[MAX_VALUES]; /* those that were made have a reference each */
    Tensor tensors[MAX_VALUES];
    Py_ssize_t count;
} Frame;

static int read_value(PyObject *object, Tensor *tensor) {
    if (is_tensor(object)) return read_tensor(object, tensor);
    tensor->num_axes = -1;
    return 0;
}

/* Leaves and what they are, as they were found when the call was recognised, else as they are now. */
static int take_leaves(const FixedCall *self, Frame *frame, const Leaves *leaves,
                       const Reading *reading) {
    PyObject *const *objects = reading ? reading->objects : leaves->objects;
    Py_ssize_t count = reading ? reading->count : leaves->count;
    if (count != self->num_leaves || (!reading && leaves->are_too_many)) return -1;
    memcpy(frame->values, objects, (size_t)count * sizeof(PyObject *));
    if (reading) memcpy(frame->tensors, reading->tensors, (size_t)count * sizeof(Tensor));
    for (Py_ssize_t i = 0; i < count && !reading; i++)
        if (read_value(objects[i], &frame->tensors[i])) return -1;
    frame->count = count;
    return 0;
}

static int make(const Maker *maker, Frame *frame) {
    PyObject *made =
        maker->example >= 0
            ? PyObject_Vectorcall(maker->function, &frame->values[maker->example], 1, NULL)
            : PyObject_Vectorcall(maker->function, &PyTuple_GET_ITEM(maker->args, 0),
                                  (size_t)maker->num_positional, maker->names);
    if (made == NULL) return -1;
    frame->values[frame->count] = made;
    return read_value(made, &frame->tensors[frame->count++]);
}

static int make_tensors(const FixedCall *self, Frame *frame) {
    for (Py_ssize_t i = 0; i < self->num_makers; i++)
        if (make(&self->makers[i], frame)) return -1;
    return 0;
}

static int has_elements(const Tensor *tensor) {
    for (int32_t i = 0; i < tensor->num_axes; i++)
        if (tensor->sizes[i] == 0) return 0;
    return 1;
}

/* Not 0 for what only a longer way can judge: a tensor without memory, a number that is too large. */
static int fill_slot(const Slot *slot, const Frame *frame, uint64_t *word) {
    PyObject *value = frame->values[slot->value];
    if (slot->kind == ADDRESS) {
        const Tensor *tensor = &frame->tensors[slot->value];
        if (!is_tensor(value)) return -1;
        *word = address_of(tensor);
        return *word == 0 && has_elements(tensor) ? -1 : 0;
    }
    if (slot->kind == FLOAT) {
        double number = PyFloat_AsDouble(value);
        memcpy(word, &number, sizeof(number));
    } else {
        *word = (uint64_t)PyLong_AsLongLong(value);
    }
    return PyErr_Occurred() ? -1 : 0;
}

/* -1 where asking fails. */
static long long num_threads_of(const FixedCall *self) {
    if (self->count_threads == Py_None) return 1;
    PyObject *number = PyObject_CallNoArgs(self->count_threads);
    if (number == NULL) return -1;
    long long num_threads = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return num_threads;
}

static int run(const FixedCall *self, const Frame *frame) {
    uint64_t words[MAX_SLOTS];
    for (Py_ssize_t i = 0; i < self->num_slots; i++)
        if (fill_slot(&self->slots[i], frame, &words[i])) return -1;
    long long num_threads = num_threads_of(self);
    if (num_threads == -1 && PyErr_Occurred()) return -1;
    Py_BEGIN_ALLOW_THREADS
    run_code(self->code, (const char *)words, num_threads);
    Py_END_ALLOW_THREADS
    return 0;
}

static PyObject *result_of(const FixedCall *self, const Frame *frame) {
    PyObject *results[MAX_VALUES];
    for (Py_ssize_t i = 0; i < self->num_results; i++)
        results[i] = frame->values[self->results[i]];
    if (self->after != Py_None)
        return PyObject_Vectorcall(self->after, results, (size_t)self->num_results, NULL);
    if (!self->is_tuple) return Py_NewRef(self->num_results ? results[0] : Py_None);
    PyObject *tuple = PyTuple_New(self->num_results);
    for (Py_ssize_t i = 0; tuple && i < self->num_results; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(results[i]));
    return tuple;
}

static int is_as_it_was(const FixedCall *self) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(self->watched); i++) {
        PyObject *place = PyTuple_GET_ITEM(self->watched, i);
        PyObject *now = PyDict_GetItem(PyTuple_GET_ITEM(place, 0), PyTuple_GET_ITEM(place, 1));
        PyObject *code = PyTuple_GET_ITEM(place, 3);
        if (now == NULL || now != PyTuple_GET_ITEM(place, 2)) return 0;
        if (code != Py_None && PyFunction_GET_CODE(now) != code) return 0;
    }
    return 1;
}

/* 0 where machine code has run; before that nothing has happened that another way could not do. */
static int prepare_and_run(const FixedCall *self, Frame *frame, const Leaves *leaves,
                           const Reading *reading) {
    if (!is_as_it_was(self)) return -1;
    if (take_leaves(self, frame, leaves, reading) || make_tensors(self, frame)) return -1;
    Py_ssize_t num_constants = PyTuple_GET_SIZE(self->constants);
    for (Py_ssize_t i = 0; i < num_constants; i++)
        frame->values[frame->count + i] = PyTuple_GET_ITEM(self->constants, i);
    return run(self, frame);
}

/* What was read of these very arguments; whoever runs in between may call this with others. */
static const Reading *take_reading(const FixedCall *self, PyObject *const *args) {
    const Reading *reading = latest_reading;
    if (reading == NULL || reading->owner != self->owner || reading->args != args) return NULL;
    latest_reading = NULL;
    return reading;
}

/* Not 0 with an exception that stops programs, such as KeyboardInterrupt. Any other is forgotten: the
   longer way meets the same problem, and has words for it. */
static int was_interrupted(void) {
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) return 1;
    PyErr_Clear();
    return 0;
}

static PyObject *fixed_call_call(PyObject *object, PyObject *const *args, size_t flags,
                                 PyObject *keywords) {
    FixedCall *self = (FixedCall *)object;
    Frame frame;
    Leaves leaves = {.num_spread = 0};
    Py_ssize_t count = PyVectorcall_NARGS(flags);
    if (self->otherwise == NULL) { /* of no use any more: its references were cleared */
        PyErr_SetString(PyExc_RuntimeError, "this call is being deleted");
        return NULL;
    }
    frame.count = 0;
    const Reading *reading = keywords ? NULL : take_reading(self, args);
    if (reading == NULL) find_leaves(&leaves, args, count);
    Py_INCREF(self); /* code after the launch may let go of it */
    PyObject *result;
    if (keywords == NULL && prepare_and_run(self, &frame, &leaves, reading) == 0)
        result = result_of(self, &frame);
    else if (was_interrupted())
        result = NULL;
    else
        result = PyObject_Vectorcall(self->otherwise, args, flags, keywords);
    while (frame.count > self->num_leaves) Py_DECREF(frame.values[--frame.count]);
    release_leaves(&leaves);
    Py_DECREF(self);
    return result;
}

static int parse_maker(PyObject *item, Maker *maker, Py_ssize_t num_leaves) {
    maker->example = -1;
    if (!PyArg_ParseTuple(item, "OO!O!|n", &maker->function, &PyTuple_Type, &maker->args,
                          &PyTuple_Type, &maker->names, &maker->example))
        return -1;
    if (maker->example >= num_leaves) {
        PyErr_SetString(PyExc_IndexError, "no leaf has such a number");
        return -1;
    }
    Py_ssize_t num_names = PyTuple_GET_SIZE(maker->names);
    maker->num_positional = PyTuple_GET_SIZE(maker->args) - num_names;
    if (maker->num_positional < 0) {
        PyErr_SetString(PyExc_ValueError, "more names than arguments");
        return -1;
    }
    if (num_names == 0) maker->names = NULL;
    Py_INCREF(maker->function);
    Py_INCREF(maker->args);
    Py_XINCREF(maker->names);
    return 0;
}

static int parse_makers(FixedCall *self, PyObject *makers) {
    self->makers = PyMem_Calloc((size_t)PyTuple_GET_SIZE(makers) + 1, sizeof(Maker));
    if (self->makers == NULL) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(makers); i++, self->num_makers++)
        if (parse_maker(PyTuple_GET_ITEM(makers, i), &self->makers[i], self->num_leaves))
            return -1;
    return 0;
}

static int check_number(const FixedCall *self, Py_ssize_t number) {
    Py_ssize_t count = self->num_leaves + self->num_makers + PyTuple_GET_SIZE(self->constants);
    if (number >= 0 && number < count) return 0;
    PyErr_SetString(PyExc_IndexError, "no value has such a number");
    return -1;
}

static int parse_slots(FixedCall *self, PyObject *slots) {
    self->slots = PyMem_Calloc((size_t)PyTuple_GET_SIZE(slots) + 1, sizeof(Slot));
    if (self->slots == NULL) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(slots); i++, self->num_slots++) {
        int kind;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(slots, i), "in", &kind, &self->slots[i].value) ||
            check_number(self, self->slots[i].value))
            return -1;
        if (kind < 0 || kind >= NUM_KINDS) {
            PyErr_SetString(PyExc_ValueError, "no such kind of a slot");
            return -1;
        }
        self->slots[i].kind = (SlotKind)kind;
    }
    return 0;
}

static int parse_results(FixedCall *self, PyObject *results) {
    self->results = PyMem_Calloc((size_t)PyTuple_GET_SIZE(results) + 1, sizeof(Py_ssize_t));
    if (self->results == NULL) return PyErr_NoMemory(), -1;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results); i++, self->num_results++) {
        self->results[i] = PyLong_AsSsize_t(PyTuple_GET_ITEM(results, i));
        if (PyErr_Occurred() || check_number(self, self->results[i])) return -1;
    }
    return 0;
}

static int parse_all(FixedCall *self, PyObject *makers, PyObject *slots, PyObject *results) {
    Py_ssize_t num_values = self->num_leaves + PyTuple_GET_SIZE(makers) +
                            PyTuple_GET_SIZE(self->constants);
    if (self->num_leaves < 0 || num_values > MAX_VALUES || PyTuple_GET_SIZE(slots) > MAX_SLOTS ||
        PyTuple_GET_SIZE(results) > MAX_VALUES) {
        PyErr_SetString(PyExc_ValueError, "more values than there is room for");
        return -1;
    }
    return parse_makers(self, makers) || parse_slots(self, slots) || parse_results(self, results);
}

static int check_watched(PyObject *watched) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(watched); i++) {
        PyObject *dict, *key, *value, *code;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(watched, i), "O!O!OO", &PyDict_Type, &dict,
                              &PyUnicode_Type, &key, &value, &code))
            return -1;
        if (code != Py_None && !PyFunction_Check(value)) {
            PyErr_SetString(PyExc_TypeError, "only functions have code");
            return -1;
        }
    }
    return 0;
}

static PyObject *fixed_call_new(PyTypeObject *type, PyObject *given, PyObject *keywords) {
    PyObject *otherwise, *makers, *slots, *constants, *results, *after, *count_threads, *kept;
    PyObject *watched;
    unsigned long long address, owner;
    Py_ssize_t num_leaves;
    int is_tuple;
    static char *names[] = {"address", "owner",     "otherwise", "num_leaves", "makers",
                            "slots",   "constants", "watched",   "results",    "is_tuple",
                            "after",   "count_threads", "kept",  NULL};
    if (!PyArg_ParseTupleAndKeywords(given, keywords, "KKOnO!O!O!O!O!pOOO", names, &address,
                                     &owner, &otherwise, &num_leaves, &PyTuple_Type, &makers,
                                     &PyTuple_Type, &slots, &PyTuple_Type, &constants,
                                     &PyTuple_Type, &watched, &PyTuple_Type, &results, &is_tuple,
                                     &after, &count_threads, &kept) ||
        check_watched(watched))
        return NULL;
    FixedCall *self = (FixedCall *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->call = fixed_call_call;
    self->code = (Code)(uintptr_t)address;
    self->owner = (uintptr_t)owner;
    self->num_leaves = num_leaves;
    self->is_tuple = is_tuple;
    self->otherwise = Py_NewRef(otherwise);
    self->constants = Py_NewRef(constants);
    self->watched = Py_NewRef(watched);
    self->after = Py_NewRef(after);
    self->count_threads = Py_NewRef(count_threads);
    self->kept = Py_NewRef(kept);
    if (parse_all(self, makers, slots, results) == 0) return (PyObject *)self;
    Py_DECREF(self);
    return NULL;
}

static int fixed_call_traverse(FixedCall *self, visitproc visit, void *arg) {
    Py_VISIT(self->otherwise);
    Py_VISIT(self->constants);
    Py_VISIT(self->watched);
    Py_VISIT(self->after);
    Py_VISIT(self->count_threads);
    Py_VISIT(self->kept);
    for (Py_ssize_t i = 0; i < self->num_makers; i++) {
        Py_VISIT(self->makers[i].function);
        Py_VISIT(self->makers[i].args);
    }
    return 0;
}

/* Its constants, makers and code stay as long as it does: a call may be under way. */
static int fixed_call_clear(FixedCall *self) {
    Py_CLEAR(self->otherwise);
    return 0;
}

static void fixed_call_dealloc(FixedCall *self) {
    PyObject_GC_UnTrack(self);
    fixed_call_clear(self);
    Py_XDECREF(self->constants);
    Py_XDECREF(self->watched);
    Py_XDECREF(self->after);
    Py_XDECREF(self->count_threads);
    Py_XDECREF(self->kept);
    for (Py_ssize_t i = 0; i < self->num_makers; i++) {
        Py_XDECREF(self->makers[i].function);
        Py_XDECREF(self->makers[i].args);
        Py_XDECREF(self->makers[i].names);
    }
    PyMem_Free(self->makers);
    PyMem_Free(self->slots);
    PyMem_Free(self->results);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

PyTypeObject fixed_call_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "tensor_reader.FixedCall",
    .tp_doc = "FixedCall(...): makes tensors, runs machine code on addresses and numbers, returns\n"
              "results. Calls that it cannot run go to ``otherwise``.",
    .tp_basicsize = sizeof(FixedCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_new = fixed_call_new,
    .tp_dealloc = (destructor)fixed_call_dealloc,
    .tp_traverse = (traverseproc)fixed_call_traverse,
    .tp_clear = (inquiry)fixed_call_clear,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(FixedCall, call),
};
